// SPDX-License-Identifier: Apache-2.0
// The include order matters: the vector type first, then the code built on it.
#include "kernels/vec_avx512.h"

#include "kernels/vec_transpose.h"

#include "kernels/tile_body_narrow.h"

#include "kernels/tile_body_bf16.h"

namespace {
QKV_DEFINE_EXP2(4)
QKV_DEFINE_EXP2(8)
QKV_DEFINE_EXP2(16)

constexpr qkv::Bf16TileKernels kBf16_4 = bf16_tile_kernels<Vec<4>, 4>();
constexpr qkv::Bf16TileKernels kBf16_8 = bf16_tile_kernels<Vec<8>, 8>();
constexpr qkv::Bf16TileKernels kBf16_16 = bf16_tile_kernels<Vec<16>, 16>();
constexpr qkv::Bf16TileKernels kBf16_32 = bf16_tile_kernels<Vec<16>, 32>();
constexpr qkv::Bf16TileKernels kBf16_48 = bf16_tile_kernels<Vec<16>, 48>();
}  // namespace

namespace qkv {
const KernelTable kAvx512Bf16Kernels =
    kernel_table<Vec<16>>("avx512_bf16", interleave, tile_kernels<Vec<4>, 4, Vec<16>>(&kBf16_4),
                          tile_kernels<Vec<8>, 8, Vec<16>>(&kBf16_8), tile_kernels<Vec<16>, 16, Vec<16>>(&kBf16_16),
                          tile_kernels<Vec<16>, 32, Vec<16>>(&kBf16_32), tile_kernels<Vec<16>, 48, Vec<16>>(&kBf16_48));
}  // namespace qkv
