// SPDX-License-Identifier: Apache-2.0
// The kernels of a tile (kernels.h), written once for a small vector type V = Vec<lanes>. Each instruction set's file
// includes its vec_*.h and then this file; everything is in an anonymous namespace, so that no function compiled for
// one instruction set can be linked in place of another's.
#pragma once

#include <stdint.h>

#include "core/float_types.h"
#include "kernels/kernels.h"

namespace {

constexpr float kMinusInfinity = -__builtin_inff();
constexpr float kRescaleStep = 8.0f;  // log2 units: probabilities before the final division stay below 2^8

// 2^f for |f| <= 1/2: a degree-5 minimax polynomial that is 1 at 0; relative error below 1e-7.
template <class V>
QKV_INLINE V exp2_polynomial(V f) {
  V p = V::set1(0.001326472731307149f);
  p = V::fma(p, f, V::set1(0.009671512991189957f));
  p = V::fma(p, f, V::set1(0.05550733581185341f));
  p = V::fma(p, f, V::set1(0.24022242426872253f));
  p = V::fma(p, f, V::set1(0.6931470036506653f));
  return V::fma(p, f, V::set1(1.0f));
}
#define QKV_DEFINE_EXP2(N) \
  inline Vec<N> Vec<N>::exp2_fraction(Vec<N> f) { return exp2_polynomial(f); }

// tanh: x + x^3 p(x^2) near 0, 1 - 2 / (e^2x + 1) elsewhere.
template <class V>
QKV_INLINE V tanh_of(V x) {
  const V size = V::abs(x), square = V::mul(x, x);
  V p = V::set1(-0.005528637208044529f);
  p = V::fma(p, square, V::set1(0.020483320578932762f));
  p = V::fma(p, square, V::set1(-0.05369297042489052f));
  p = V::fma(p, square, V::set1(0.1333089917898178f));
  p = V::fma(p, square, V::set1(-0.3333326280117035f));
  const V near = V::fma(V::mul(x, square), p, x);
  const V e = V::exp2(V::mul(size, V::set1(2.8853900817779268f)));
  const V positive = V::sub(V::set1(1.0f), V::div(V::set1(2.0f), V::add(e, V::set1(1.0f))));
  const V far = V::select(V::gt(V::zero(), x), V::sub(V::zero(), positive), positive);
  return V::select(V::gt(size, V::set1(0.65f)), far, near);
}

// ---- items of a product -------------------------------------------------------------------------------------

// Products are chains of multiply-adds over items. An item is one f32 here, and a pair of adjacent bf16 in
// tile_body_bf16.h. Item (row, c) of a matrix is at row * stride + c * step elements.
template <class Vector>
struct Singles {
  using V = Vector;
  using Element = float;
  using Wide = Vector;  // a vector of items
  static constexpr int step = 1;
  QKV_INLINE Wide load(const Element* p) { return V::load(p); }
  QKV_INLINE Wide spread(const Element* p) { return V::set1(*p); }
  QKV_INLINE V multiply_add(Wide a, Wide b, V sum) { return V::fma(a, b, sum); }
};

// ---- scores = k . q ------------------------------------------------------------------------------------------------

// R keys by the vectors [A, B) of a tile of W columns; chains over the d items of a row.
template <class P, int W, int A, int B, int R, class E = typename P::Element>
QKV_INLINE void scores_block(const E* k, int64_t ldk, const E* qt, int64_t d, float* s, float* tile_max) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V acc[R][B - A];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < B - A; ++v) acc[r][v] = V::zero();
  for (int64_t c = 0; c < d; ++c) {
    typename P::Wide q[B - A];
#pragma GCC unroll 3
    for (int v = 0; v < B - A; ++v) q[v] = P::load(qt + (c * W + (A + v) * L) * P::step);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename P::Wide key = P::spread(k + r * ldk + c * P::step);
#pragma GCC unroll 3
      for (int v = 0; v < B - A; ++v) acc[r][v] = P::multiply_add(key, q[v], acc[r][v]);
    }
  }
  // Stores before maxima: interleaving them delays the products that follow, by 2 to 4 % of the scores on Zen 4.
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int v = 0; v < B - A; ++v) V::store(s + r * W + (A + v) * L, acc[r][v]);
#pragma GCC unroll 3
  for (int v = 0; v < B - A; ++v) {
    V top = V::load(tile_max + (A + v) * L);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) top = V::max(acc[r][v], top);
    V::store(tile_max + (A + v) * L, top);
  }
}

// Prefetches the rows that will be read next; they may lie past the end.
template <class E>
QKV_INLINE void prefetch_rows(const E* x, int64_t ldx, int rows, int64_t d) {
  for (int r = 0; r < rows; ++r)
    for (int64_t byte = 0; byte < d * int64_t{sizeof(E)}; byte += 64)
      __builtin_prefetch(reinterpret_cast<const char*>(x + r * ldx) + byte);
}

template <class P, int W, int A, int B, class E = typename P::Element>
void scores_range(const E* k, int64_t ldk, const E* qt, int64_t d, int n, float* s, float* tile_max) {
  constexpr int R = P::V::keys_at_once;
  int j = 0;
  for (; j + R <= n; j += R) {
    prefetch_rows(k + (j + R) * ldk, ldk, R, d * P::step);
    scores_block<P, W, A, B, R>(k + j * ldk, ldk, qt, d, s + j * W, tile_max);
  }
  for (; j < n; ++j) scores_block<P, W, A, B, 1>(k + j * ldk, ldk, qt, d, s + j * W, tile_max);
}

// ---- sums of p * v -------------------------------------------------------------------------------------------------

// R rows of ot (head dimensions) by the vectors [A, B); chains over the n items of a column.
template <class P, int W, int A, int B, int R, class E = typename P::Element>
QKV_INLINE void accumulate_block(const E* p, const E* v, int64_t ldv, int n, bool fresh, float* ot) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V acc[R][B - A];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int x = 0; x < B - A; ++x) acc[r][x] = fresh ? V::zero() : V::load(ot + r * W + (A + x) * L);
  for (int j = 0; j < n; ++j) {
    typename P::Wide weight[B - A];
    __builtin_prefetch(v + (j + 4) * ldv * P::step);
#pragma GCC unroll 3
    for (int x = 0; x < B - A; ++x) weight[x] = P::load(p + (j * W + (A + x) * L) * P::step);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename P::Wide value = P::spread(v + (j * ldv + r) * P::step);
#pragma GCC unroll 3
      for (int x = 0; x < B - A; ++x) acc[r][x] = P::multiply_add(weight[x], value, acc[r][x]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 3
    for (int x = 0; x < B - A; ++x) V::store(ot + r * W + (A + x) * L, acc[r][x]);
}

template <class P, int W, int A, int B, class E = typename P::Element>
void accumulate_range(const E* p, const E* v, int64_t ldv, int64_t d_v, int n, bool fresh, float* ot) {
  constexpr int R = P::V::keys_at_once;
  for (int64_t c = 0; c < d_v; c += R) accumulate_block<P, W, A, B, R>(p, v + c * P::step, ldv, n, fresh, ot + c * W);
}

// ---- softmax -------------------------------------------------------------------------------------------------------

template <class V>
QKV_INLINE V reference_of(V m) {  // any finite number works for a query that has not read anything yet
  return V::select(V::eq(m, V::set1(kMinusInfinity)), V::zero(), m);
}

template <class V, int W>
void column_max(const float* s, int n, int first, int last, float* tile_max) noexcept {
  for (int x = first; x < last; ++x) {
    V top = V::load(tile_max + x * V::lanes);
    for (int j = 0; j < n; ++j) top = V::max(V::load(s + j * W + x * V::lanes), top);
    V::store(tile_max + x * V::lanes, top);
  }
}

template <class V, int W>
void rescale(float unit, const float* tile_max, int64_t d_v, float* m, float* l, float* ot) noexcept {
  constexpr int L = V::lanes;
  const V step = V::set1(kRescaleStep / unit), one = V::set1(1.0f);
  V factor[W / L];
  bool any = false;
#pragma GCC unroll 3
  for (int x = 0; x < W / L; ++x) {
    const V old = V::load(m + x * L), top = V::load(tile_max + x * L);
    const typename V::Mask moved = V::gt(top, V::add(old, step));
    const V scaled = V::exp2(V::mul(V::sub(old, reference_of(top)), V::set1(unit)));
    factor[x] = V::select(moved, scaled, one);
    V::store(m + x * L, V::select(moved, top, old));
    V::store(l + x * L, V::mul(V::load(l + x * L), factor[x]));
    any |= V::any(moved);
  }
  if (!any || !ot) return;
  for (int64_t c = 0; c < d_v; ++c)
#pragma GCC unroll 3
    for (int x = 0; x < W / L; ++x) V::store(ot + c * W + x * L, V::mul(V::load(ot + c * W + x * L), factor[x]));
}

template <class P, int W, int A, int B, class V = typename P::V>
void exponentials_range(float unit, int n, const float* m, float* l, float* s) {
  constexpr int L = V::lanes;
  V top[B - A], sum[B - A];
#pragma GCC unroll 3
  for (int x = 0; x < B - A; ++x) {
    top[x] = reference_of(V::load(m + (A + x) * L));
    sum[x] = V::load(l + (A + x) * L);
  }
  const V factor = V::set1(unit);
  for (int j = 0; j < n; ++j)
#pragma GCC unroll 3
    for (int x = 0; x < B - A; ++x) {
      const V p = V::exp2(V::mul(V::sub(V::load(s + j * W + (A + x) * L), top[x]), factor));
      V::store(s + j * W + (A + x) * L, p);
      sum[x] = V::add(sum[x], p);
    }
#pragma GCC unroll 3
  for (int x = 0; x < B - A; ++x) V::store(l + (A + x) * L, sum[x]);
}

template <class V, int W>
void merge(float unit, int64_t d_v, const float* split_m, const float* split_l, const float* split_ot, float* m,
           float* l, float* ot) noexcept {
  constexpr int L = V::lanes;
  for (int x = 0; x < W / L; ++x) {
    const V old = V::load(m + x * L), later = V::load(split_m + x * L);
    const V top = V::max(old, later), reference = reference_of(top);
    const V a = V::exp2(V::mul(V::sub(old, reference), V::set1(unit)));
    const V b = V::exp2(V::mul(V::sub(later, reference), V::set1(unit)));
    V::store(m + x * L, top);
    V::store(l + x * L, V::fma(V::load(l + x * L), a, V::mul(V::load(split_l + x * L), b)));
    for (int64_t c = 0; c < d_v; ++c) {
      const V scaled = V::mul(V::load(split_ot + c * W + x * L), b);
      V::store(ot + c * W + x * L, V::fma(V::load(ot + c * W + x * L), a, scaled));
    }
  }
}

// ---- score modifications before the softmax ------------------------------------------------------------------------

template <class V, int W, class Change>
QKV_INLINE void each_score(int n, int first, int last, float* s, const Change& change) {
  for (int j = 0; j < n; ++j)
    for (int x = first; x < last; ++x) {
      float* at = s + j * W + x * V::lanes;
      V::store(at, change(V::load(at), j, x * V::lanes));
    }
}

template <class V, int W>
void scale(float factor, int n, int first, int last, float* s) noexcept {
  const V by = V::set1(factor);
  each_score<V, W>(
      n, first, last, s, [&](V score, int, int) __attribute__((always_inline)) { return V::mul(score, by); });
}

template <class V, int W>
void softcap(float cap, int n, int first, int last, float* s, float* slope) noexcept {
  const V size = V::set1(cap), inverse = V::set1(1.0f / cap), one = V::set1(1.0f);
  each_score<V, W>(
      n, first, last, s, [&](V score, int j, int column) __attribute__((always_inline)) {
        const V t = tanh_of(V::mul(score, inverse));
        if (slope) V::store(slope + j * W + column, V::mul(V::sub(one, t), V::add(one, t)));
        return V::mul(size, t);
      });
}

template <class V, int W>
void alibi(const float* slopes, const float* distances, int n, int first, int last, float* s) noexcept {
  each_score<V, W>(
      n, first, last, s, [&](V score, int j, int column) __attribute__((always_inline)) {
        const V distance = V::abs(V::add(V::load(distances + column), V::set1(static_cast<float>(j))));
        return V::sub(score, V::mul(V::load(slopes + column), distance));
      });
}

template <class V, int W>
void add(const float* bias, int n, int first, int last, float* s) noexcept {
  each_score<V, W>(
      n, first, last, s, [&](V score, int j, int column) __attribute__((always_inline)) {
        // -inf means masked whatever the score is, NaN included.
        const V b = V::load(bias + j * W + column), none = V::set1(kMinusInfinity);
        return V::select(V::eq(b, none), none, V::add(score, b));
      });
}

template <class V, int W>
void limit(const float* begin, const float* end, int key, int n, int first, int last, float* s) noexcept {
  each_score<V, W>(
      n, first, last, s, [&](V score, int j, int column) __attribute__((always_inline)) {
        const V at = V::set1(static_cast<float>(key + j));
        const typename V::Mask inside = V::both(V::ge(at, V::load(begin + column)), V::gt(V::load(end + column), at));
        return V::select(inside, score, V::set1(kMinusInfinity));
      });
}

template <class V, int W>
void allowed_bits(const float* s, int n, uint64_t* allowed) noexcept {
  for (int j = 0; j < n; ++j) {
    uint64_t none = 0;
    for (int x = 0; x < W / V::lanes; ++x)
      none |= V::bits(V::eq(V::load(s + j * W + x * V::lanes), V::set1(kMinusInfinity))) << (x * V::lanes);
    allowed[j] = ~none;
  }
}

// ---- backward ------------------------------------------------------------------------------------------------------

template <class V, int W>
void backward_softmax(float unit, int n, int first, int last, const float* lse, const float* delta, float* s,
                      float* dp) noexcept {
  const V factor = V::set1(unit), none = V::set1(kMinusInfinity);
  for (int x = first; x < last; ++x) {
    const V total = V::load(lse + x * V::lanes), d = V::load(delta + x * V::lanes);
    for (int j = 0; j < n; ++j) {
      float *at = s + j * W + x * V::lanes, *gradient = dp + j * W + x * V::lanes;
      const V score = V::load(at);
      const typename V::Mask skipped = V::eq(score, none);
      const V p = V::exp2(V::mul(V::sub(score, total), factor));
      const V ds = V::mul(p, V::sub(V::load(gradient), d));
      V::store(at, V::select(skipped, V::zero(), p));
      V::store(gradient, V::select(skipped, V::zero(), ds));
    }
  }
}

// R keys by N vectors of columns; chains over the items of a key's row.
template <class P, int W, int R, int N, class E = typename P::Element>
QKV_INLINE void outer_block(const E* p, const E* x, int64_t ldx, int items, float* c, int64_t ldc) {
  using V = typename P::V;
  V acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) acc[r][v] = V::load(c + r * ldc + v * V::lanes);
  for (int i = 0; i < items; ++i) {
    typename P::Wide row[N];
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) row[v] = P::load(x + (i * ldx + v * V::lanes) * P::step);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const typename P::Wide weight = P::spread(p + r * W + i * P::step);
#pragma GCC unroll 4
      for (int v = 0; v < N; ++v) acc[r][v] = P::multiply_add(weight, row[v], acc[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < N; ++v) V::store(c + r * ldc + v * V::lanes, acc[r][v]);
}

template <class P, int W, int R, int N, class E = typename P::Element>
void outer_columns(const E* p, const E* x, int64_t ldx, int n, int items, float* c, int64_t ldc) {
  int j = 0;
  for (; j + R <= n; j += R) outer_block<P, W, R, N>(p + j * W, x, ldx, items, c + j * ldc, ldc);
  for (; j < n; ++j) outer_block<P, W, 1, N>(p + j * W, x, ldx, items, c + j * ldc, ldc);
}

template <class P, int W, class E = typename P::Element>
void outer_product(const E* p, const E* x, int64_t ldx, int64_t cols, int n, int items, float* c, int64_t ldc) {
  constexpr int L = P::V::lanes, R = P::V::outer_keys;
  int64_t col = 0;
  for (; col + 4 * L <= cols; col += 4 * L)
    outer_columns<P, W, R, 4>(p, x + col * P::step, ldx, n, items, c + col, ldc);
  if (col + 2 * L <= cols) {
    outer_columns<P, W, 2 * R, 2>(p, x + col * P::step, ldx, n, items, c + col, ldc);
    col += 2 * L;
  }
  if (col < cols) outer_columns<P, W, 2 * R, 1>(p, x + col * P::step, ldx, n, items, c + col, ldc);
}

// ---- layout --------------------------------------------------------------------------------------------------------

template <class V, int W>
void column_dots(const float* a, const float* b, int64_t d, float* dots) noexcept {
  for (int x = 0; x < W; x += V::lanes) {
    V sum = V::zero();
    for (int64_t c = 0; c < d; ++c) sum = V::fma(V::load(a + c * W + x), V::load(b + c * W + x), sum);
    V::store(dots + x, sum);
  }
}

template <class V, int W>
void transpose_in(const float* x, int64_t ldx, int rows, int64_t d, float* t) noexcept {
  constexpr int L = V::lanes;
  for (int i0 = 0; i0 < W; i0 += L) {
    int64_t c0 = 0;
    if (i0 + L <= rows)
      for (; c0 + L <= d; c0 += L) {
        V square[L];
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) square[i] = V::load(x + (i0 + i) * ldx + c0);
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) V::store(t + (c0 + i) * W + i0, square[i]);
      }
    for (; c0 < d; ++c0)
      for (int i = i0; i < i0 + L; ++i) t[c0 * W + i] = i < rows ? x[i * ldx + c0] : 0.0f;
  }
}

template <class V, int W>
void transpose_out(const float* t, int rows, int64_t d, const float* factor, float* x, int64_t ldx) noexcept {
  constexpr int L = V::lanes;
  for (int i0 = 0; i0 < rows; i0 += L) {
    const V scale = V::load(factor + i0);
    int64_t c0 = 0;
    if (i0 + L <= rows)
      for (; c0 + L <= d; c0 += L) {
        V square[L];
#pragma GCC unroll 16
        // Adding 0 converts -0, which depends on how many keys were skipped, to 0.
        for (int i = 0; i < L; ++i) square[i] = V::add(V::mul(V::load(t + (c0 + i) * W + i0), scale), V::zero());
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) V::store(x + (i0 + i) * ldx + c0, square[i]);
      }
    for (; c0 < d; ++c0)
      for (int i = i0; i < i0 + L && i < rows; ++i) x[i * ldx + c0] = t[c0 * W + i] * factor[i] + 0.0f;
  }
}

// ---- the table -----------------------------------------------------------------------------------------------------

// Calls range<P, W, A, B>(...) for the run-time vectors [first, last) of a tile of 1 to 3 vectors.
#define QKV_DISPATCH(range, P, W, ...)                           \
  constexpr int kVectors = W / P::V::lanes;                      \
  if (last - first == kVectors) {                                \
    range<P, W, 0, kVectors>(__VA_ARGS__);                       \
  } else if constexpr (kVectors == 3) {                          \
    if (first == 0 && last == 2) range<P, W, 0, 2>(__VA_ARGS__); \
    if (first == 0 && last == 1) range<P, W, 0, 1>(__VA_ARGS__); \
    if (first == 1 && last == 3) range<P, W, 1, 3>(__VA_ARGS__); \
    if (first == 1 && last == 2) range<P, W, 1, 2>(__VA_ARGS__); \
    if (first == 2 && last == 3) range<P, W, 2, 3>(__VA_ARGS__); \
  } else if constexpr (kVectors == 2) {                          \
    if (first == 0) range<P, W, 0, 1>(__VA_ARGS__);              \
    if (first == 1) range<P, W, 1, 2>(__VA_ARGS__);              \
  }

template <class P, int W, class E = typename P::Element>
void scores(const E* k, int64_t ldk, const E* qt, int64_t d, int n, int, int first, int last, float* s,
            float* tile_max) noexcept {
  QKV_DISPATCH(scores_range, P, W, k, ldk, qt, d, n, s, tile_max)
}
template <class P, int W>
void exponentials(float unit, int n, int first, int last, const float* m, float* l, float* s) noexcept {
  QKV_DISPATCH(exponentials_range, P, W, unit, n, m, l, s)
}
template <class P, int W, class E = typename P::Element>
void accumulate(const E* p, const E* v, int64_t ldv, int64_t d_v, int n, int, int first, int last, bool fresh,
                float* ot) noexcept {
  QKV_DISPATCH(accumulate_range, P, W, p, v, ldv, d_v, n, fresh, ot)
}
template <class P, int W, class E = typename P::Element>
void outer(const E* p, const E* x, int64_t ldx, int64_t cols, int n, int items, float* c, int64_t ldc) noexcept {
  outer_product<P, W>(p, x, ldx, cols, n, items, c, ldc);
}

template <class V>
bool all_finite(const float* x, int64_t ldx, int rows, int64_t cols) noexcept {
  // x * 0 is 0 for a finite x and NaN otherwise.
  V sums[4] = {V::zero(), V::zero(), V::zero(), V::zero()};
  float rest = 0;
  for (int i = 0; i < rows; ++i) {
    const float* row = x + i * ldx;
    int64_t c = 0;
    for (; c + 4 * V::lanes <= cols; c += 4 * V::lanes)
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) sums[v] = V::fma(V::load(row + c + v * V::lanes), V::zero(), sums[v]);
    for (; c + V::lanes <= cols; c += V::lanes) sums[0] = V::fma(V::load(row + c), V::zero(), sums[0]);
    for (; c < cols; ++c) rest += row[c] * 0.0f;
  }
  const V sum = V::add(V::add(sums[0], sums[1]), V::add(sums[2], sums[3]));
  constexpr uint64_t kAll = (uint64_t{1} << V::lanes) - 1;
  return V::bits(V::eq(sum, V::zero())) == kAll && rest == 0;
}

inline bool all_finite_bf16(const uint16_t* x, int64_t ldx, int rows, int64_t cols) noexcept {
  uint16_t bad = 0;
  for (int i = 0; i < rows; ++i)
    for (int64_t c = 0; c < cols; ++c) bad |= static_cast<uint16_t>((x[i * ldx + c] & 0x7f80) == 0x7f80);
  return !bad;
}

template <class V>
void widen_bf16(const uint16_t* x, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + V::lanes <= n; i += V::lanes) V::store(y + i, V::from_bf16(x + i));
  if (i == n) return;
  uint16_t rest[V::lanes] = {};
  for (int64_t r = i; r < n; ++r) rest[r - i] = x[r];
  const V wide = V::from_bf16(rest);
  float out[V::lanes];
  V::store(out, wide);
  for (int64_t r = i; r < n; ++r) y[r] = out[r - i];
}

template <class V>
void widen_f16(const uint16_t* x, int64_t n, float* y) noexcept {
  int64_t i = 0;
  for (; i + V::lanes <= n; i += V::lanes) V::store(y + i, V::from_f16(x + i));
  if (i == n) return;
  uint16_t rest[V::lanes] = {};
  for (int64_t r = i; r < n; ++r) rest[r - i] = x[r];
  float out[V::lanes];
  V::store(out, V::from_f16(rest));
  for (int64_t r = i; r < n; ++r) y[r] = out[r - i];
}

inline void narrow_bf16(const float* x, int64_t n, uint16_t* y) noexcept {
  for (int64_t i = 0; i < n; ++i) y[i] = qkv::narrow<qkv::bf16>(x[i]).bits;
}

inline void widen_q8_0(const std::byte* blocks, int64_t n, float* y) noexcept {
  for (int64_t at = 0; at < n; at += 32, blocks += 34) {
    qkv::f16 scale;
    __builtin_memcpy(&scale, blocks, 2);
    const float d = qkv::widen(scale);
    int8_t quants[32];
    __builtin_memcpy(quants, blocks + 2, 32);
    if (n - at >= 32) {
      for (int i = 0; i < 32; ++i) y[at + i] = d * static_cast<float>(quants[i]);
    } else {
      for (int64_t i = 0; i < n - at; ++i) y[at + i] = d * static_cast<float>(quants[i]);
    }
  }
}

}  // namespace
