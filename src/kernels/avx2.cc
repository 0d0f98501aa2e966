// SPDX-License-Identifier: Apache-2.0
// The include order matters: the vector type first, then the code built on it.
#include "kernels/vec_avx2.h"

#include "kernels/vec_transpose.h"

#include "kernels/tile_body_narrow.h"

namespace {
QKV_DEFINE_EXP2(4)
QKV_DEFINE_EXP2(8)
}  // namespace

namespace qkv {
const KernelTable kAvx2Kernels =
    kernel_table<Vec<8>>("avx2", nullptr, tile_kernels<Vec<4>, 4, Vec<8>>(), tile_kernels<Vec<8>, 8, Vec<8>>(),
                         tile_kernels<Vec<8>, 16, Vec<8>>(), tile_kernels<Vec<8>, 24, Vec<8>>());
}  // namespace qkv
