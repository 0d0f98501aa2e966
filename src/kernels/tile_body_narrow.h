// SPDX-License-Identifier: Apache-2.0
// The two products of tiles of few queries, as in decoding, where vectors of queries would be mostly empty: vectors are
// keys in the scores and head dimensions in the sums. The chains of multiply-adds are those of tile_body.h, so are the
// bits. Such tiles do little work a byte, so they ask for the next key tile's memory ahead. Then the table of a width.
#pragma once

#include "kernels/tile_body.h"

namespace {

constexpr int kNarrowWidth = 8;  // tiles up to this width
constexpr int kLine = 64;        // bytes

// Vectors of L keys for R columns of the tile, n a multiple of L; P's vectors are the widest, PN's those of the tile.
template <class P, int W, int R, class E = typename P::Element>
void narrow_scores_columns(const E* k, int64_t ldk, const E* qt, int64_t d, int n, float* s, float* tile_max) {
  using V = typename P::V;
  constexpr int L = V::lanes;
  V top[R];
  for (int r = 0; r < R; ++r) top[r] = V::set1(tile_max[r]);
  for (int j = 0; j < n; j += L) {
    const E* keys = k + j * ldk;
    V acc[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) acc[r] = V::zero();
    int64_t c = 0;
    for (; c + L <= d; c += L) {
      V square[L];
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) {
        const E* row = keys + i * ldk + c * P::step;
        __builtin_prefetch(row + qkv::kKeyTile * ldk, 0, 2);
        const typename P::Wide items = P::load(row);
        __builtin_memcpy(&square[i], &items, sizeof items);
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < L; ++i) {
        typename P::Wide key;
        __builtin_memcpy(&key, &square[i], sizeof key);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[r] = P::multiply_add(key, P::spread(qt + ((c + i) * W + r) * P::step), acc[r]);
      }
    }
    for (; c < d; ++c) {
      E items[L * P::step];
      for (int i = 0; i < L; ++i) __builtin_memcpy(items + i * P::step, keys + i * ldk + c * P::step, 4);
      const typename P::Wide key = P::load(items);
      for (int r = 0; r < R; ++r) acc[r] = P::multiply_add(key, P::spread(qt + (c * W + r) * P::step), acc[r]);
    }
    float columns[R][L];
    for (int r = 0; r < R; ++r) {
      V::store(columns[r], acc[r]);
      top[r] = V::max(acc[r], top[r]);
    }
    for (int i = 0; i < L; ++i)
      for (int r = 0; r < W; ++r) s[(j + i) * W + r] = r < R ? columns[r < R ? r : 0][i] : 0.0f;
  }
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
  if (rows <= 1)
    narrow_scores_columns<P, W, 1>(k, ldk, qt, d, whole, s, tile_max);
  else if (rows <= 2)
    narrow_scores_columns<P, W, 2>(k, ldk, qt, d, whole, s, tile_max);
  else if (rows <= 4 || W == 4)
    narrow_scores_columns<P, W, 4>(k, ldk, qt, d, whole, s, tile_max);
  else
    narrow_scores_columns<P, W, W>(k, ldk, qt, d, whole, s, tile_max);
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
