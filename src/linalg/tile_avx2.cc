// SPDX-License-Identifier: Apache-2.0
// Compiled with AVX2 and FMA. The loops over rows are unrolled so that the sums stay in registers.
#include <immintrin.h>

#include "linalg/tile.h"

namespace qkv {

void tile_avx2(std::int64_t k, const float* a, const float* b, float* c) noexcept {
  __m256 sums[kTileRows][2];  // [kTileRows, kTileColumns]
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_ps();
  for (std::int64_t p = 0; p < k; ++p) {
    const __m256 low = _mm256_loadu_ps(b + p * kTileColumns), high = _mm256_loadu_ps(b + p * kTileColumns + 8);
#pragma GCC unroll 6
    for (int i = 0; i < kTileRows; ++i) {
      const __m256 x = _mm256_broadcast_ss(a + p * kTileRows + i);
      sums[i][0] = _mm256_fmadd_ps(x, low, sums[i][0]);
      sums[i][1] = _mm256_fmadd_ps(x, high, sums[i][1]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < kTileRows; ++i) {
    _mm256_storeu_ps(c + i * kTileColumns, sums[i][0]);
    _mm256_storeu_ps(c + i * kTileColumns + 8, sums[i][1]);
  }
}

}  // namespace qkv
