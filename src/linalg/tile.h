// SPDX-License-Identifier: Apache-2.0
// Our own products, for processors on which no oneDNN product meets the guarantees of gemm.h (without AVX-512): each
// element of C is one sum over k in ascending order.
#pragma once

#include <cstdint>

namespace qkv {

inline constexpr std::int64_t kTileRows = 6, kTileColumns = 16;

// a [k, kTileRows], b [k, kTileColumns] -> c [kTileRows, kTileColumns], the sums over k
using Tile = void (*)(std::int64_t k, const float* a, const float* b, float* c) noexcept;

void tile_portable(std::int64_t k, const float* a, const float* b, float* c) noexcept;
#if defined(__x86_64__)
void tile_avx2(std::int64_t k, const float* a, const float* b, float* c) noexcept;  // AVX2 and FMA
#endif
Tile best_tile();  // for this processor (os/cpu_level.h)

// Like gemm(), using the given tile.
void tiled_gemm(Tile tile, bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                std::int64_t lda, const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

}  // namespace qkv
