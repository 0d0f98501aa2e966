// SPDX-License-Identifier: Apache-2.0
// The two products for tiles of few queries, as in decode, where vectors of queries would be mostly empty: vector lanes
// are keys in the scores and head dimensions in the sums. The chains of multiply-adds, and so the bits, are those of
// tile_body.h. Such tiles do little work per byte and are memory-bound, so the order of memory accesses matters.
// Followed by the tables per width and per instruction set.
#pragma once

#include "kernels/tile_body.h"

namespace {

constexpr int kNarrowWidth = 8;          // tiles up to this width
constexpr int kLine = 64, kPage = 4096;  // bytes

// The hardware prefetches contiguous rows, but not past the end of a memory page: where a row begins a page, prefetches
// the beginning of the next page. Rows with gaps are prefetched one key tile ahead.
QKV_INLINE void prefetch_ahead(const void* row, int64_t stride, int64_t bytes) {
  const char* at = static_cast<const char*>(row);
  if (stride != bytes) {
    for (int64_t line = 0; line < bytes; line += kLine) __builtin_prefetch(at + qkv::kKeyTile * stride + line, 0, 2);
  } else if (reinterpret_cast<uintptr_t>(at) % kPage < static_cast<uintptr_t>(bytes)) {
    for (int line = 0; line < 8; ++line) __builtin_prefetch(at + kPage + line * kLine, 0, 2);
  }
}

// Reads lines of dense rows in order, which triggers the hardware prefetcher; the code that follows reads them in
// another order.
QKV_INLINE void prefetch_lines(const char* at, int lines) {
#pragma GCC unroll 4
  for (int line = 0; line < lines; ++line) static_cast<void>(*static_cast<const volatile char*>(at + line * kLine));
}

// L keys and `count` <= L items for R columns of the tile: transposed, then multiplied item by item.
template <class P, int W, int R, class E = typename P::Element>
QKV_INLINE void narrow_scores_rest(const char* keys, int64_t stride, const E* queries, int count,
                                   typename P::V (&acc)[R]) {
  constexpr int L = P::V::lanes;
  for (int i = 0; i < count; ++i) {
    float items[L];
    typename P::Wide column;
    for (int j = 0; j < L; ++j) __builtin_memcpy(&items[j], keys + j * stride + i * 4, 4);
    __builtin_memcpy(&column, items, sizeof column);
    for (int r = 0; r < R; ++r) acc[r] = P::multiply_add(column, P::spread(queries + (i * W + r) * P::step), acc[r]);
  }
}

// G vectors of L keys for R columns of the tile: G * R parallel chains. prefetch: whether the same number of keys
// follows, whose lines are read meanwhile, a few per step.
template <class P, int W, int R, int G, class E = typename P::Element>
QKV_INLINE void narrow_scores_block(const E* k, int64_t ldk, const E* qt, int64_t d, bool prefetch, float* s,
                                    typename P::V (&top)[R]) {
  using V = typename P::V;
  constexpr int L = V::lanes, kItem = 4;  // bytes
  const int64_t stride = ldk * static_cast<int64_t>(sizeof(E));
  constexpr int kStepLines = L * L * kItem / kLine;
  const char* next = reinterpret_cast<const char*>(k) + G * L * stride;
  V acc[G][R];
  const char* keys[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    keys[g] = reinterpret_cast<const char*>(k) + g * L * stride;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[g][r] = V::zero();
  }
  int64_t c = 0;
  for (; c + L <= d; c += L) {
    const E* queries = qt + c * W * P::step;
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      if (prefetch) prefetch_lines(next, kStepLines);
      next += kStepLines * kLine;
      V square[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) __builtin_memcpy(&square[i], keys[g] + i * stride, sizeof square[i]);
      transpose(square);
      keys[g] += L * kItem;
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) {
        typename P::Wide column;
        __builtin_memcpy(&column, &square[i], sizeof column);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          acc[g][r] = P::multiply_add(column, P::spread(queries + (i * W + r) * P::step), acc[g][r]);
      }
    }
  }
  if (c < d)
    for (int g = 0; g < G; ++g)
      narrow_scores_rest<P, W, R>(keys[g], stride, qt + c * W * P::step, static_cast<int>(d - c), acc[g]);
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) {
      float lanes[L];
      V::store(lanes, acc[g][r]);
      top[r] = V::max(acc[g][r], top[r]);
      for (int i = 0; i < L; ++i) s[(g * L + i) * W + r] = lanes[i];
    }
}

// n keys, a multiple of L, for the columns [0, R); up to `following` more may be prefetched meanwhile.
template <class P, int W, int R, class E = typename P::Element>
void narrow_scores_columns(const E* k, int64_t ldk, const E* qt, int64_t d, int n, int following, float* s,
                           float* tile_max) {
  using V = typename P::V;
  constexpr int L = V::lanes, kKeys = 2 * L;
  const bool dense = ldk * static_cast<int64_t>(sizeof(E)) == d * 4 && d * 4 % kLine == 0 && d % L == 0;
  V top[R];
  for (int r = 0; r < R; ++r) top[r] = V::set1(tile_max[r]);
  int j = 0;
  for (; j + kKeys <= n; j += kKeys) {
    const bool prefetch = dense && j + 2 * kKeys <= n + following;
    narrow_scores_block<P, W, R, 2>(k + j * ldk, ldk, qt, d, prefetch, s + j * W, top);
  }
  for (; j < n; j += L) narrow_scores_block<P, W, R, 1>(k + j * ldk, ldk, qt, d, false, s + j * W, top);
  for (int r = 0; r < R; ++r) {
    float lanes[L];
    V::store(lanes, top[r]);
    for (int i = 0; i < L; ++i) tile_max[r] = lanes[i] > tile_max[r] ? lanes[i] : tile_max[r];
  }
}

template <class P, class PN, int W, class E = typename P::Element>
void narrow_scores(const E* k, int64_t ldk, const E* qt, int64_t d, int n, int rows, int, int, float* s,
                   float* tile_max) noexcept {
  const int whole = n / P::V::lanes * P::V::lanes;
  if (rows < W)  // keeps the other columns finite
    for (int i = 0; i < whole * W; ++i) s[i] = 0;
  const int64_t stride = ldk * static_cast<int64_t>(sizeof(E)), bytes = d * 4;
  if (stride == bytes)
    prefetch_lines(reinterpret_cast<const char*>(k), static_cast<int>((n < 16 ? n : 16) * bytes / kLine));
  for (int j = 0, count; j < whole; j += count) {
    count = whole - j < qkv::kKeyTile ? whole - j : qkv::kKeyTile;
    const E* keys = k + j * ldk;
    if (stride != bytes)
      for (int i = 0; i < count; ++i) prefetch_ahead(keys + i * ldk, stride, bytes);
    int r = 0;
    for (; r + 4 <= rows; r += 4)
      narrow_scores_columns<P, W, 4>(keys, ldk, qt + r * P::step, d, count, n - j - count, s + j * W + r, tile_max + r);
    for (; r < rows; ++r)
      narrow_scores_columns<P, W, 1>(keys, ldk, qt + r * P::step, d, count, n - j - count, s + j * W + r, tile_max + r);
  }
  scores_range<PN, W, 0, 1>(k + whole * ldk, ldk, qt, d, n - whole, s + whole * W, tile_max);
}

// Like `column_max` and `exponentials`, for a tile of one vector, processing several keys in a wide vector.
template <class Wide, class V, int W>
void narrow_column_max(const float* s, int n, int, int, float* tile_max) noexcept {
  constexpr int L = Wide::lanes;
  float lanes[L];
  for (int i = 0; i < L; ++i) lanes[i] = tile_max[i % W];
  Wide top = Wide::load(lanes);
  int at = 0;
  for (; at + L <= n * W; at += L) top = Wide::max(Wide::load(s + at), top);
  Wide::store(lanes, top);
  V narrow = V::load(tile_max);
  for (int i = 0; i < L; i += W) narrow = V::max(V::load(lanes + i), narrow);
  for (; at < n * W; at += W) narrow = V::max(V::load(s + at), narrow);
  V::store(tile_max, narrow);
}

template <class Wide, class V, int W>
void narrow_exponentials(float unit, int n, int, int, const float* m, float* l, float* s) noexcept {
  constexpr int L = Wide::lanes, kKeys = L / W;
  float tops[L];
  for (int i = 0; i < L; ++i) tops[i] = m[i % W];
  const Wide top = reference_of(Wide::load(tops)), factor = Wide::set1(unit);
  V sum = V::load(l);
  int j = 0;
  for (; j + kKeys <= n; j += kKeys) {
    Wide::store(s + j * W, Wide::exp2(Wide::mul(Wide::sub(Wide::load(s + j * W), top), factor)));
#pragma GCC unroll 4
    for (int key = j; key < j + kKeys; ++key) sum = V::add(sum, V::load(s + key * W));
  }
  V::store(l, sum);
  exponentials_range<Singles<V>, W, 0, 1>(unit, n - j, m, l, s + j * W);
}

// N vectors of head dimensions for column r.
template <class P, int W, int N, class E = typename P::Element>
QKV_INLINE void narrow_accumulate_block(const E* p, const E* v, int64_t ldv, int n, bool fresh, float* ot) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V acc[N];
#pragma GCC unroll 4
  for (int x = 0; x < N; ++x) {
    float lanes[L];
    for (int i = 0; i < L; ++i) lanes[i] = fresh ? 0.0f : ot[(x * L + i) * W];
    acc[x] = V::load(lanes);
  }
  for (int j = 0; j < n; ++j) {
    const typename P::Wide weight = P::spread(p + j * W * P::step);
    if constexpr (P::step == 1) prefetch_ahead(v + j * ldv, ldv * int64_t{sizeof(E)}, N * L * int64_t{sizeof(E)});
#pragma GCC unroll 4
    for (int x = 0; x < N; ++x) acc[x] = P::multiply_add(weight, P::load(v + (j * ldv + x * L) * P::step), acc[x]);
  }
#pragma GCC unroll 4
  for (int x = 0; x < N; ++x) {
    float lanes[L];
    V::store(lanes, acc[x]);
    for (int i = 0; i < L; ++i) ot[(x * L + i) * W] = lanes[i];
  }
}

template <class P, class PN, int W, class E = typename P::Element>
void narrow_accumulate(const E* p, const E* v, int64_t ldv, int64_t d_v, int n, int rows, int, int, bool fresh,
                       float* ot) noexcept {
  constexpr int L = P::V::lanes, R = PN::V::keys_at_once;
  if (fresh && rows < W)  // keeps the other columns finite
    for (int64_t c = 0; c < d_v * W; ++c) ot[c] = 0;
  int64_t c = 0;
  for (; c + 4 * L <= d_v; c += 4 * L)
    for (int r = 0; r < rows; ++r)
      narrow_accumulate_block<P, W, 4>(p + r * P::step, v + c * P::step, ldv, n, fresh, ot + c * W + r);
  for (; c + L <= d_v; c += L)
    for (int r = 0; r < rows; ++r)
      narrow_accumulate_block<P, W, 1>(p + r * P::step, v + c * P::step, ldv, n, fresh, ot + c * W + r);
  for (; c < d_v; c += R) accumulate_block<PN, W, 0, 1, R>(p, v + c * P::step, ldv, n, fresh, ot + c * W);
}

// Wide: the widest vector of the instruction set, for the products of narrow tiles.
template <class V, int W, class Wide>
constexpr qkv::TileKernels tile_kernels(const qkv::Bf16TileKernels* bf16 = nullptr) {
  using P = Singles<V>;
  constexpr bool kNarrow = W <= kNarrowWidth;
  using Keys = Singles<Vec<(Wide::lanes < 8 ? Wide::lanes : 8)>>;
  return {.width = W,
          .lanes = V::lanes,
          .scores = kNarrow ? narrow_scores<Keys, P, W> : scores<P, W>,
          .column_max = kNarrow ? narrow_column_max<Wide, V, (kNarrow ? W : V::lanes)> : column_max<V, W>,
          .rescale = rescale<V, W>,
          .exponentials = kNarrow ? narrow_exponentials<Wide, V, (kNarrow ? W : V::lanes)> : exponentials<P, W>,
          .accumulate = kNarrow ? narrow_accumulate<Singles<Wide>, P, W> : accumulate<P, W>,
          .merge = merge<V, W>,
          .softcap = softcap<V, W>,
          .alibi = alibi<V, W>,
          .add = add<V, W>,
          .limit = limit<V, W>,
          .allowed_bits = allowed_bits<V, W>,
          .backward_softmax = backward_softmax<V, W>,
          .outer = outer<P, W>,
          .transpose_in = transpose_in<V, W>,
          .transpose_out = transpose_out<V, W>,
          .column_dots = column_dots<V, W>,
          .scale = scale<V, W>,
          .bf16 = bf16};
}

// The table of an instruction set with these tiles, narrowest first. interleave: null without products of bf16 pairs.
template <class Wide, class... Tiles>
constexpr qkv::KernelTable kernel_table(std::string_view name, decltype(qkv::KernelTable::interleave) interleave,
                                        Tiles... tiles) {
  return {.name = name,
          .tile_count = sizeof...(tiles),
          .tiles = {tiles...},
          .interleave = interleave,
          .all_finite = all_finite<Wide>,
          .all_finite_bf16 = all_finite_bf16,
          .widen_bf16 = widen_bf16<Wide>,
          .widen_f16 = widen_f16<Wide>,
          .narrow_bf16 = narrow_bf16,
          .widen_q8_0 = widen_q8_0};
}

}  // namespace
