// SPDX-License-Identifier: Apache-2.0
// The bf16 products of a tile (Bf16TileKernels) for AVX512_BF16, built on tile_body.h.
#pragma once

#include <immintrin.h>
#include <stdint.h>

#include "kernels/tile_body_narrow.h"

namespace {

// Vectors of 32-bit items, each a pair of bf16, in addition to Vec<N>.
template <int N>
struct PairVec;

template <>
struct PairVec<16> {
  __m512i r;
  QKV_INLINE PairVec load(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
  QKV_INLINE void store(uint16_t* p, PairVec a) { _mm512_storeu_si512(p, a.r); }
  QKV_INLINE PairVec spread(const uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm512_set1_epi32(pair)};
  }
  QKV_INLINE Vec<16> dot(PairVec a, PairVec b, Vec<16> sum) {
    return {_mm512_dpbf16_ps(sum.r, (__m512bh)a.r, (__m512bh)b.r)};
  }
  // Lane i is the pair (low[i], high[i]), rounded.
  QKV_INLINE PairVec round(Vec<16> low, Vec<16> high) {
    const __m512i both = (__m512i)_mm512_cvtne2ps_pbh(high.r, low.r);
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return {_mm512_permutexvar_epi16(order, both)};
  }
  QKV_INLINE void store_rounded(uint16_t* p, Vec<16> x) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(x.r));
  }
};

template <>
struct PairVec<8> {
  __m256i r;
  QKV_INLINE PairVec load(const uint16_t* p) { return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))}; }
  QKV_INLINE void store(uint16_t* p, PairVec a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.r); }
  QKV_INLINE PairVec spread(const uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm256_set1_epi32(pair)};
  }
  QKV_INLINE Vec<8> dot(PairVec a, PairVec b, Vec<8> sum) {
    return {_mm256_dpbf16_ps(sum.r, (__m256bh)a.r, (__m256bh)b.r)};
  }
  QKV_INLINE PairVec round(Vec<8> low, Vec<8> high) {
    const __m256i both = (__m256i)_mm256_cvtne2ps_pbh(high.r, low.r);
    const __m256i order = _mm256_set_epi16(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    return {_mm256_permutexvar_epi16(order, both)};
  }
  QKV_INLINE void store_rounded(uint16_t* p, Vec<8> x) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), (__m128i)_mm256_cvtneps_pbh(x.r));
  }
};

template <>
struct PairVec<4> {
  __m128i r;
  QKV_INLINE PairVec load(const uint16_t* p) { return {_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))}; }
  QKV_INLINE void store(uint16_t* p, PairVec a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), a.r); }
  QKV_INLINE PairVec spread(const uint16_t* p) {
    int pair;
    __builtin_memcpy(&pair, p, 4);
    return {_mm_set1_epi32(pair)};
  }
  QKV_INLINE Vec<4> dot(PairVec a, PairVec b, Vec<4> sum) {
    return {_mm_dpbf16_ps(sum.r, (__m128bh)a.r, (__m128bh)b.r)};
  }
  QKV_INLINE PairVec round(Vec<4> low, Vec<4> high) {
    const __m128i both = (__m128i)_mm_cvtne2ps_pbh(high.r, low.r);
    return {_mm_unpacklo_epi16(both, _mm_srli_si128(both, 8))};
  }
  QKV_INLINE void store_rounded(uint16_t* p, Vec<4> x) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), (__m128i)_mm_cvtneps_pbh(x.r));
  }
};

template <class Vector>
struct Pairs {
  using V = Vector;
  using Element = uint16_t;
  using Wide = PairVec<Vector::lanes>;
  static constexpr int step = 2;
  QKV_INLINE Wide load(const Element* p) { return Wide::load(p); }
  QKV_INLINE Wide spread(const Element* p) { return Wide::spread(p); }
  QKV_INLINE V multiply_add(Wide a, Wide b, V sum) { return Wide::dot(a, b, sum); }
};

// 2^x with a degree-3 polynomial on [0, 1]: relative error 1e-4, a twentieth of the bf16 rounding error. It is 1 at 0
// and exactly 2 at 1, which small negative x map to. scale_by_power takes the floor of x itself.
template <class V>
QKV_INLINE V exp2_for_bf16(V x) {
  const V f = V::above_floor(x);
  V p = V::set1(0.07826796919107437f);
  p = V::fma(p, f, V::set1(0.22630766034126282f));
  p = V::fma(p, f, V::set1(0.6954243779182434f));
  p = V::fma(p, f, V::set1(1.0f));
  return V::scale_by_power(p, x);
}

template <class P, int W, int A, int B>
void exponentials_pairs_range(float unit, int n, const float* m, float* l, const float* s, uint16_t* p_pairs) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V top[B - A], sum[B - A];
#pragma GCC unroll 3
  for (int x = 0; x < B - A; ++x) {
    top[x] = reference_of(V::load(m + (A + x) * L));
    sum[x] = V::load(l + (A + x) * L);
  }
  const V factor = V::set1(unit);
  const auto one = [&](int j, int x) __attribute__((always_inline)) {
    const V p = exp2_for_bf16(V::mul(V::sub(V::load(s + j * W + (A + x) * L), top[x]), factor));
    sum[x] = V::add(sum[x], p);
    return p;
  };
  int j = 0;
  for (; j + 2 <= n; j += 2)
#pragma GCC unroll 3
    for (int x = 0; x < B - A; ++x) {
      const V low = one(j, x), high = one(j + 1, x);
      P::Wide::store(p_pairs + j * W + (A + x) * L * 2, P::Wide::round(low, high));
    }
  if (j < n)
    for (int x = 0; x < B - A; ++x)
      P::Wide::store(p_pairs + j * W + (A + x) * L * 2, P::Wide::round(one(j, x), V::zero()));
#pragma GCC unroll 3
  for (int x = 0; x < B - A; ++x) V::store(l + (A + x) * L, sum[x]);
}

template <class P, int W>
void exponentials_pairs(float unit, int n, int first, int last, const float* m, float* l, const float* s,
                        uint16_t* p_pairs) noexcept {
  QKV_DISPATCH(exponentials_pairs_range, P, W, unit, n, m, l, s, p_pairs)
}

// The same for a tile of one vector, processing several pairs of keys in wide vectors.
template <class V, int W>
void narrow_exponentials_pairs(float unit, int n, int, int, const float* m, float* l, const float* s,
                               uint16_t* p_pairs) noexcept {
  constexpr int L = 16, kKeys = 2 * L / W;
  alignas(64) float tops[L], p[2 * L];
  alignas(64) uint16_t order[2 * L];  // of [key][column] in [key / 2][column][2]
  for (int i = 0; i < L; ++i) tops[i] = m[i % W];
  for (int i = 0; i < 2 * L; ++i) order[i] = static_cast<uint16_t>((i / (2 * W) * 2 + i % 2) * W + i % (2 * W) / 2);
  const __m512i by_pairs = _mm512_load_si512(order);
  const Vec<L> top = reference_of(Vec<L>::load(tops)), factor = Vec<L>::set1(unit);
  V sum = V::load(l);
  int j = 0;
  for (; j + kKeys <= n; j += kKeys) {
    const auto one = [&](int at) __attribute__((always_inline)) {
      return exp2_for_bf16(Vec<L>::mul(Vec<L>::sub(Vec<L>::load(s + j * W + at), top), factor));
    };
    const Vec<L> low = one(0), high = one(L);
    Vec<L>::store(p, low);
    Vec<L>::store(p + L, high);
#pragma GCC unroll 8
    for (int key = 0; key < kKeys; ++key) sum = V::add(sum, V::load(p + key * W));
    const auto both = (__m512i)_mm512_cvtne2ps_pbh(high.r, low.r);
    _mm512_storeu_si512(p_pairs + j * W, _mm512_permutexvar_epi16(by_pairs, both));
  }
  V::store(l, sum);
  exponentials_pairs_range<Pairs<V>, W, 0, 1>(unit, n - j, m, l, s + j * W, p_pairs + j * W);
}

template <class P, int W>
void round_scores(const float* x, int n, int first, int last, uint16_t* rows, uint16_t* pairs) noexcept {
  using V = typename P::V;
  constexpr int L = V::lanes;
  for (int j = 0; j < n; j += 2)
    for (int v = first; v < last; ++v) {
      const V low = V::load(x + j * W + v * L), high = j + 1 < n ? V::load(x + (j + 1) * W + v * L) : V::zero();
      P::Wide::store_rounded(rows + j * W + v * L, low);
      if (j + 1 < n) P::Wide::store_rounded(rows + (j + 1) * W + v * L, high);
      if (pairs) P::Wide::store(pairs + j * W + v * L * 2, P::Wide::round(low, high));
    }
}

template <class V, int W>
void transpose_pairs(const uint16_t* x, int64_t ldx, int rows, int64_t d_pairs, uint16_t* t_pairs) noexcept {
  constexpr int L = V::lanes;
  using Wide = PairVec<L>;
  for (int i0 = 0; i0 < W; i0 += L) {
    int64_t c0 = 0;
    if (i0 + L <= rows)
      for (; c0 + L <= d_pairs; c0 += L) {
        V square[L];
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) {
          const Wide row = Wide::load(x + (i0 + i) * ldx + c0 * 2);
          __builtin_memcpy(&square[i], &row, sizeof row);
        }
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) {
          Wide column;
          __builtin_memcpy(&column, &square[i], sizeof column);
          Wide::store(t_pairs + ((c0 + i) * W + i0) * 2, column);
        }
      }
    for (; c0 < d_pairs; ++c0)
      for (int i = i0; i < i0 + L; ++i) {
        uint16_t* at = t_pairs + (c0 * W + i) * 2;
        at[0] = i < rows ? x[i * ldx + c0 * 2] : uint16_t{0};
        at[1] = i < rows ? x[i * ldx + c0 * 2 + 1] : uint16_t{0};
      }
  }
}

// For permutex2var: the first or last 16 pairs (a[i], b[i]) of two rows of 32.
QKV_INLINE __m512i interleaving_low() {
  return _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36, 4, 35,
                          3, 34, 2, 33, 1, 32, 0);
}
QKV_INLINE __m512i interleaving_high() { return _mm512_add_epi16(interleaving_low(), _mm512_set1_epi16(16)); }

inline void interleave(const uint16_t* x, int64_t ldx, int rows, int64_t cols, int64_t padded,
                       uint16_t* pairs) noexcept {
  const __m512i low = interleaving_low(), high = interleaving_high();
  for (int i = 0; i < rows; i += 2) {
    const uint16_t *a = x + i * ldx, *b = i + 1 < rows ? a + ldx : nullptr;
    uint16_t* to = pairs + i * padded;
    int64_t c = 0;
    for (; c + 32 <= cols; c += 32) {
      const __m512i first = _mm512_loadu_si512(a + c), second = b ? _mm512_loadu_si512(b + c) : _mm512_setzero_si512();
      _mm512_storeu_si512(to + c * 2, _mm512_permutex2var_epi16(first, low, second));
      _mm512_storeu_si512(to + c * 2 + 32, _mm512_permutex2var_epi16(first, high, second));
    }
    for (; c < cols; ++c) {
      to[c * 2] = a[c];
      to[c * 2 + 1] = b ? b[c] : uint16_t{0};
    }
    for (; c < padded; ++c) to[c * 2] = to[c * 2 + 1] = 0;
  }
}

// For column r of the tile, N x 32 columns of v, the last 32 limited to `count`; pairs of rows are interleaved on load.
template <int W, int N>
QKV_INLINE void narrow_accumulate_columns(const uint16_t* p_pairs, const uint16_t* v, int64_t ldv, int count, int n,
                                          float* ot) {
  const __m512i low = interleaving_low(), high = interleaving_high();
  const __mmask32 columns = count == 32 ? ~__mmask32{0} : (__mmask32{1} << count) - 1;
  const int all = (N - 1) * 32 + count;
  float lanes[N * 32] = {};
  for (int i = 0; i < all; ++i) lanes[i] = ot[i * W];
  Vec<16> sums[2 * N];
#pragma GCC unroll 4
  for (int x = 0; x < 2 * N; ++x) sums[x] = Vec<16>::load(lanes + x * 16);
  const auto load = [&](const uint16_t* row, int x) __attribute__((always_inline)) {
    return x + 1 < N ? _mm512_loadu_si512(row + x * 32) : _mm512_maskz_loadu_epi16(columns, row + x * 32);
  };
  for (int j = 0; j < n; j += 2) {
    const PairVec<16> weight = PairVec<16>::spread(p_pairs + j * W);
    prefetch_ahead(v + j * ldv, ldv * 2, N * 64);
    if (j + 1 < n) prefetch_ahead(v + (j + 1) * ldv, ldv * 2, N * 64);
#pragma GCC unroll 2
    for (int x = 0; x < N; ++x) {
      const __m512i a = load(v + j * ldv, x), b = j + 1 < n ? load(v + (j + 1) * ldv, x) : _mm512_setzero_si512();
      sums[2 * x] = PairVec<16>::dot(weight, {_mm512_permutex2var_epi16(a, low, b)}, sums[2 * x]);
      sums[2 * x + 1] = PairVec<16>::dot(weight, {_mm512_permutex2var_epi16(a, high, b)}, sums[2 * x + 1]);
    }
  }
#pragma GCC unroll 4
  for (int x = 0; x < 2 * N; ++x) Vec<16>::store(lanes + x * 16, sums[x]);
  for (int i = 0; i < all; ++i) ot[i * W] = lanes[i];
}

// Like narrow_accumulate, but from unpacked rows of v. d is the number of columns of v; ot has them padded to a
// multiple of 8.
template <int W>
void narrow_accumulate_rows(const uint16_t* p_pairs, const uint16_t* v, int64_t ldv, int64_t d, int n, int rows,
                            bool fresh, float* ot) noexcept {
  if (fresh)
    for (int64_t c = 0; c < (d + 7) / 8 * 8 * W; ++c) ot[c] = 0;
  int64_t c = 0;
  for (; c + 64 <= d; c += 64)
    for (int r = 0; r < rows; ++r) narrow_accumulate_columns<W, 2>(p_pairs + r * 2, v + c, ldv, 32, n, ot + c * W + r);
  for (; c < d; c += 32)
    for (int r = 0; r < rows; ++r)
      narrow_accumulate_columns<W, 1>(p_pairs + r * 2, v + c, ldv, static_cast<int>(d - c < 32 ? d - c : 32), n,
                                      ot + c * W + r);
}

template <class V, int W>
constexpr qkv::Bf16TileKernels bf16_tile_kernels() {
  using P = Pairs<V>;
  using Wide = Pairs<Vec<16>>;
  constexpr bool kNarrow = W <= kNarrowWidth;
  return {.scores = kNarrow ? narrow_scores<Pairs<Vec<8>>, P, W> : scores<P, W>,
          .exponentials = kNarrow ? narrow_exponentials_pairs<V, (kNarrow ? W : V::lanes)> : exponentials_pairs<P, W>,
          .accumulate = kNarrow ? narrow_accumulate<Wide, P, W> : accumulate<P, W>,
          .outer = outer<P, W>,
          .round = round_scores<P, W>,
          .transpose_pairs = transpose_pairs<V, W>,
          .accumulate_rows = kNarrow ? narrow_accumulate_rows<W> : nullptr};
}

}  // namespace
