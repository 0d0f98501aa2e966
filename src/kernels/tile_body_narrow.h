// SPDX-License-Identifier: Apache-2.0
// The two products of tiles of few queries, as in decoding, where vectors of queries would be mostly empty: vectors are
// keys in the scores and head dimensions in the sums. The chains of multiply-adds are those of tile_body.h, so are the
// bits. Such tiles do little work a byte, so they ask for the next key tile's memory ahead. Then the table of a width.
#pragma once

#include "kernels/tile_body.h"

namespace {

constexpr int kNarrowWidth = 8;  // tiles up to this width
constexpr int kLine = 64;        // bytes

// G vectors of L keys for R columns of the tile: squares of keys and items are transposed, then multiplied item by
// item, so that G * R chains run side by side.
template <class P, int W, int R, int G, class E = typename P::Element>
QKV_INLINE void narrow_scores_block(const E* k, int64_t ldk, const E* qt, int64_t d, float* s,
                                    typename P::V (&top)[R]) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V acc[R][G];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) acc[r][g] = V::zero();
  alignas(64) E items[L * G * L * P::step];  // [item][G * L keys]
  for (int64_t c = 0; c < d; c += L) {
    const int count = static_cast<int>(d - c < L ? d - c : L);
    for (int g = 0; g < G; ++g) {
      const E* keys = k + g * L * ldk + c * P::step;
      E* to = items + g * L * P::step;
      if (count == L) {
        V square[L];
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) {
          __builtin_prefetch(keys + (i + qkv::kKeyTile) * ldk, 0, 2);
          const typename P::Wide row = P::load(keys + i * ldk);
          __builtin_memcpy(&square[i], &row, sizeof row);
        }
        transpose(square);
#pragma GCC unroll 16
        for (int i = 0; i < L; ++i) __builtin_memcpy(to + i * G * L * P::step, &square[i], sizeof square[i]);
      } else {
        for (int i = 0; i < count; ++i)
          for (int j = 0; j < L; ++j) __builtin_memcpy(to + (i * G * L + j) * P::step, keys + j * ldk + i * P::step, 4);
      }
    }
    for (int i = 0; i < count; ++i) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const typename P::Wide query = P::spread(qt + ((c + i) * W + r) * P::step);
#pragma GCC unroll 4
        for (int g = 0; g < G; ++g)
          acc[r][g] = P::multiply_add(P::load(items + (i * G + g) * L * P::step), query, acc[r][g]);
      }
    }
  }
  for (int r = 0; r < R; ++r)
    for (int g = 0; g < G; ++g) {
      float lanes[L];
      V::store(lanes, acc[r][g]);
      top[r] = V::max(acc[r][g], top[r]);
      for (int i = 0; i < L; ++i) s[(g * L + i) * W + r] = lanes[i];
    }
}

// n keys, a multiple of L, for the columns [0, R).
template <class P, int W, int R, class E = typename P::Element>
void narrow_scores_columns(const E* k, int64_t ldk, const E* qt, int64_t d, int n, float* s, float* tile_max) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V top[R];
  for (int r = 0; r < R; ++r) top[r] = V::set1(tile_max[r]);
  int j = 0;
  for (; j + 4 * L <= n; j += 4 * L) narrow_scores_block<P, W, R, 4>(k + j * ldk, ldk, qt, d, s + j * W, top);
  for (; j < n; j += L) narrow_scores_block<P, W, R, 1>(k + j * ldk, ldk, qt, d, s + j * W, top);
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
  if (rows < W)  // the other columns stay numbers
    for (int i = 0; i < whole * W; ++i) s[i] = 0;
  int r = 0;
  for (; r + 4 <= rows; r += 4) narrow_scores_columns<P, W, 4>(k, ldk, qt + r * P::step, d, whole, s + r, tile_max + r);
  for (; r < rows; ++r) narrow_scores_columns<P, W, 1>(k, ldk, qt + r * P::step, d, whole, s + r, tile_max + r);
  scores_range<PN, W, 0, 1>(k + whole * ldk, ldk, qt, d, n - whole, s + whole * W, tile_max);
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
#pragma GCC unroll 4
    for (int x = 0; x < N; ++x) {
      const E* row = v + (j * ldv + x * L) * P::step;
      if constexpr (P::step == 1) __builtin_prefetch(row + qkv::kKeyTile * ldv, 0, 2);
      acc[x] = P::multiply_add(weight, P::load(row), acc[x]);
    }
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
  if (fresh && rows < W)  // the other columns stay numbers
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

// Wide: the widest vector of the set, for the products of narrow tiles.
template <class V, int W, class Wide>
constexpr qkv::TileKernels tile_kernels(const qkv::Bf16TileKernels* bf16 = nullptr) {
  using P = Singles<V>;
  constexpr bool kNarrow = W <= kNarrowWidth;
  return {W,
          V::lanes,
          kNarrow ? narrow_scores<Singles<Wide>, P, W> : scores<P, W>,
          column_max<V, W>,
          rescale<V, W>,
          exponentials<P, W>,
          kNarrow ? narrow_accumulate<Singles<Wide>, P, W> : accumulate<P, W>,
          merge<V, W>,
          softcap<V, W>,
          alibi<V, W>,
          add<V, W>,
          limit<V, W>,
          allowed_bits<V, W>,
          backward_softmax<V, W>,
          outer<P, W>,
          transpose_in<V, W>,
          transpose_out<V, W>,
          column_dots<V, W>,
          scale<V, W>,
          bf16};
}

}  // namespace
