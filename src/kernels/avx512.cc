// SPDX-License-Identifier: Apache-2.0
// The include order matters: the vector type first, then the code built on it.
#include "kernels/vec_avx512.h"

#include "kernels/vec_transpose.h"

#include "kernels/tile_body_narrow.h"

namespace {
QKV_DEFINE_EXP2(4)
QKV_DEFINE_EXP2(8)
QKV_DEFINE_EXP2(16)
}  // namespace

namespace qkv {
const KernelTable kAvx512Kernels = kernel_table<Vec<16>>(
    "avx512", nullptr, tile_kernels<Vec<4>, 4, Vec<16>>(), tile_kernels<Vec<8>, 8, Vec<16>>(),
    tile_kernels<Vec<16>, 16, Vec<16>>(), tile_kernels<Vec<16>, 32, Vec<16>>(), tile_kernels<Vec<16>, 48, Vec<16>>());
}  // namespace qkv
