// SPDX-License-Identifier: Apache-2.0
// The include order matters: the vector type first, then the code built on it.
#include "kernels/vec_portable.h"

#include "kernels/tile_body_narrow.h"

namespace {
QKV_DEFINE_EXP2(4)
}  // namespace

namespace qkv {
const KernelTable kPortableKernels =
    kernel_table<Vec<4>>("portable", nullptr, tile_kernels<Vec<4>, 4, Vec<4>>(), tile_kernels<Vec<4>, 12, Vec<4>>());
}  // namespace qkv
