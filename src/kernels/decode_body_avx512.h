// SPDX-License-Identifier: Apache-2.0
// Decode kernels for AVX-512. They do not prefetch: a panel is read sequentially and the next panel follows it, which
// the hardware prefetcher detects; prefetching 1 to 16 KB ahead reduced the rate by a third.
#pragma once

#include <immintrin.h>

#include "kernels/decode_body.h"

namespace {

// The elements that a product multiplies: single f32 here, pairs of bf16 in avx512_bf16_decode.cc. Element p of column
// c of a panel with N columns is at (p * N + c * step + p % step).
struct Singles {
  using Element = float;
  using Columns = __m512;  // 16 columns
  static constexpr int step = 1;
  static Columns load(const float* w) noexcept { return _mm512_loadu_ps(w); }
  static Columns spread(const float* x) noexcept { return _mm512_set1_ps(*x); }
  static __m512 multiply_add(Columns x, Columns w, __m512 sum) noexcept { return _mm512_fmadd_ps(x, w, sum); }
};

// R rows by 16 V columns.
template <class P, int V, int R, class E = typename P::Element>
inline void panel_rows(int64_t k, int64_t chunk, const E* w, const E* x, int64_t ldx, float* y, int64_t ldy) noexcept {
  __m512 total[R][V];
  for (int64_t begin = 0; begin < k; begin += chunk) {
    const int64_t end = begin + chunk < k ? begin + chunk : k;
    __m512 sums[R][V];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) sums[r][v] = _mm512_setzero_ps();
    for (int64_t p = begin; p < end; p += P::step) {
      const E* row = w + p * 16 * V;
      typename P::Columns columns[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) columns[v] = P::load(row + 16 * P::step * v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename P::Columns one = P::spread(x + r * ldx + p);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sums[r][v] = P::multiply_add(one, columns[v], sums[r][v]);
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

template <class P, int V, class E = typename P::Element>
void panel_of(int64_t rows, int64_t k, int64_t chunk, const E* w, const E* x, int64_t ldx, float* y,
              int64_t ldy) noexcept {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) panel_rows<P, V, 4>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
  for (; r + 2 <= rows; r += 2) panel_rows<P, V, 2>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
  for (; r < rows; ++r) panel_rows<P, V, 1>(k, chunk, w, x + r * ldx, ldx, y + r * ldy, ldy);
}

template <class P, class E = typename P::Element>
void panel(int vectors, int64_t rows, int64_t k, int64_t chunk, const E* w, const E* x, int64_t ldx, float* y,
           int64_t ldy) noexcept {
  switch (vectors) {
    case 1:
      return panel_of<P, 1>(rows, k, chunk, w, x, ldx, y, ldy);
    case 2:
      return panel_of<P, 2>(rows, k, chunk, w, x, ldx, y, ldy);
    case 3:
      return panel_of<P, 3>(rows, k, chunk, w, x, ldx, y, ldy);
    default:
      return panel_of<P, 4>(rows, k, chunk, w, x, ldx, y, ldy);
  }
}

// Like round_row, 32 numbers at a time.
void wide_round_row(int64_t size, const float* x, RowBlock* blocks) noexcept {
  const __m512 magic = _mm512_set1_ps(12582912.0f), infinity = _mm512_set1_ps(__builtin_inff());
  for (int64_t at = 0; at < size; at += 32, ++blocks) {
    const __m512 a = _mm512_loadu_ps(x + at), b = _mm512_loadu_ps(x + at + 16);
    const __m512 size_a = _mm512_abs_ps(a), size_b = _mm512_abs_ps(b);
    const unsigned below = _mm512_cmp_ps_mask(size_a, infinity, _CMP_LT_OQ) &
                           static_cast<unsigned>(_mm512_cmp_ps_mask(size_b, infinity, _CMP_LT_OQ));
    if (below != 0xffffu) {
      round_row(32, x + at, blocks);
      continue;
    }
    const float most = _mm512_reduce_max_ps(_mm512_max_ps(size_a, size_b));
    const bool tiny = most < 1e-30f;
    const __m512 inverse = _mm512_set1_ps(tiny ? 0.0f : kLargestWhole / most);
    blocks->scale = tiny ? 0.0f : most / kLargestWhole;
    __m512i sum = _mm512_setzero_si512();
    const __m512 halves[2] = {a, b};
    for (int h = 0; h < 2; ++h) {
      const __m512i whole =
          _mm512_cvttps_epi32(_mm512_sub_ps(_mm512_add_ps(_mm512_mul_ps(halves[h], inverse), magic), magic));
      sum = _mm512_add_epi32(sum, whole);
      const __m512i half = _mm512_set1_epi32(128);
      const __m512i low =
          _mm512_sub_epi32(_mm512_and_si512(_mm512_add_epi32(whole, half), _mm512_set1_epi32(255)), half);
      const __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(whole, low), 8);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks->low + 16 * h), _mm512_cvtepi32_epi8(low));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(blocks->high + 16 * h), _mm512_cvtepi32_epi8(high));
    }
    blocks->sum = _mm512_reduce_add_epi32(sum);
  }
}

}  // namespace
