// SPDX-License-Identifier: Apache-2.0
// Decode kernels of sets with AVX-512. None asks memory for what comes next: a panel is read front to back and its
// neighbour follows it, which the processor sees by itself; prefetching 1 to 16 KB ahead cost a third of the rate.
#pragma once

#include <immintrin.h>

#include "kernels/decode_body.h"

namespace {

template <int V, int R>
inline void f32_rows(int64_t k, int64_t chunk, const float* w, const float* x, int64_t ldx, float* y,
                     int64_t ldy) noexcept {
  __m512 total[R][V];
  for (int64_t begin = 0; begin < k; begin += chunk) {
    const int64_t end = begin + chunk < k ? begin + chunk : k;
    __m512 sums[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
    for (int64_t p = begin; p < end; ++p) {
      const float* row = w + p * 16 * V;
      __m512 columns[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) columns[v] = _mm512_loadu_ps(row + 16 * v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512 one = _mm512_set1_ps(x[r * ldx + p]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[r][v] = _mm512_fmadd_ps(one, columns[v], sums[r][v]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) total[r][v] = begin == 0 ? sums[r][v] : _mm512_add_ps(total[r][v], sums[r][v]);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) _mm512_storeu_ps(y + r * ldy + 16 * v, total[r][v]);
}

template <int V>
void f32_panel_of(int64_t rows, int64_t k, int64_t chunk, const float* w, const float* x, int64_t ldx, float* y,
                  int64_t ldy) noexcept {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) f32_rows<V, 4>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
  for (; r + 2 <= rows; r += 2) f32_rows<V, 2>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
  for (; r < rows; ++r) f32_rows<V, 1>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
}

void f32_panel(int vectors, int64_t rows, int64_t k, int64_t chunk, const float* w, const float* x, int64_t ldx,
               float* y, int64_t ldy) noexcept {
  switch (vectors) {
    case 1:
      return f32_panel_of<1>(rows, k, chunk, w, x, ldx, y, ldy);
    case 2:
      return f32_panel_of<2>(rows, k, chunk, w, x, ldx, y, ldy);
    case 3:
      return f32_panel_of<3>(rows, k, chunk, w, x, ldx, y, ldy);
    default:
      return f32_panel_of<4>(rows, k, chunk, w, x, ldx, y, ldy);
  }
}

}  // namespace
