// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/elements.h"
#include "core/float_types.h"
#include "core/parallel.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargeLse = 64;  // log2 units: above, rounding lse to f32 costs more than the scores' own rounding

}  // namespace

RowStatistics::RowStatistics(const TilePlan& plan, const ConstView& out, const ConstView& lse, const ConstView& dout)
    : n_head_(plan.p.n_head),
      q_len_(plan.p.q_len),
      memory_(2 * plan.p.batch * plan.p.n_head * plan.p.q_len),
      lse_(memory_.data()),
      delta_(lse_ + plan.p.batch * plan.p.n_head * plan.p.q_len) {
  const AttentionProblem& p = plan.p;
  const float to_units = static_cast<float>(kLog2E / static_cast<double>(plan.unit));
  const RowTiling tiling(plan);
  std::fill_n(lse_, p.batch * p.n_head * p.q_len, kInfinity);
  std::fill_n(delta_, p.batch * p.n_head * p.q_len, 0.0f);
  parallel_for(p.batch * p.n_kv_head * tiling.tiles(), [&](std::int64_t task) {
    const std::int64_t head = task / tiling.tiles();
    const QueryTile tile = tiling.tile(head / p.n_kv_head, head % p.n_kv_head, task % tiling.tiles());
    if (tile.rows == 0) return;
    Scratch scratch(plan);
    float* out_t = scratch.take(kMaxWidth * scratch.d_v);  // [d_v][width]
    load_rows_transposed(out, tile, p.d_v, scratch, out_t);
    load_rows_transposed(dout, tile, p.d_v, scratch, scratch.dot);
    float delta[kMaxWidth], natural;
    tile.kernels->column_dots(out_t, scratch.dot, p.d_v, delta);
    for (int r = 0; r < tile.rows; ++r) {
      widen_elements(lse.dtype, lse.data, row_offset(lse.strides, tile, r), 1, 1, &natural);
      if (natural == -kInfinity) continue;  // fully masked row; its dout may be anything
      lse_[at(tile.b, tile.head(r), tile.query(r))] = natural * to_units;
      delta_[at(tile.b, tile.head(r), tile.query(r))] = delta[r];
    }
  });
}

GradientRows::GradientRows(const TilePlan& plan, Scratch& scratch)
    : plan_(plan),
      scratch_(scratch),
      q_copy_(scratch.take(kMaxWidth * scratch.d_k)),
      dout_copy_(scratch.take(kMaxWidth * scratch.d_v)) {
  if (!plan.bf16) return;
  q_pairs = scratch.take16(kMaxWidth * scratch.d_k);
  dout_pairs = scratch.take16(kMaxWidth * scratch.d_v);
}

void GradientRows::load(const QueryTile& tile, const RowStatistics& statistics, const ConstView& dout_view) {
  q_non_finites.clear();
  dout_non_finites.clear();
  if (plan_.bf16)
    load_bf16(tile, dout_view);
  else
    load_f32(tile, dout_view);
  for (int r = 0; r < tile.kernels->width; ++r) {
    const bool real = r < tile.rows;
    lse[r] = real ? statistics.lse(tile.b, tile.head(r), tile.query(r)) : kInfinity;
    delta[r] = real ? statistics.delta(tile.b, tile.head(r), tile.query(r)) : 0.0f;
  }
  rescaled = false;
  bool large[kMaxWidth] = {};
  for (int r = 0; r < tile.rows; ++r)
    rescaled |= large[r] = std::isfinite(lse[r]) && std::abs(lse[r]) * plan_.unit > kLargeLse;
  if (rescaled) rescale(tile, large);
}

// Recomputes the tile's scores for the maximum and the sum of the rows that need it. Each row decides independently:
// its bits must not depend on its neighbours.
void GradientRows::rescale(const QueryTile& tile, const bool* large) {
  const TileKernels& kernel = *tile.kernels;
  const AttentionProblem& p = plan_.p;
  float sum[kMaxWidth] = {}, max[kMaxWidth];
  std::fill_n(max, kMaxWidth, -kInfinity);
  const KeySteps tiles{tile.any_begin, tile.any_end, p.first_key, kKeyTile};
  for (std::int64_t j = tiles.begin, next; j < tiles.end; j = next) {
    next = tiles.next(j);
    const KeyTile keys = load_keys(plan_, tile.b, tile.kv_head, j, next, KeyUse::scores, scratch_.keys);
    const TileScores scores = compute_scores(plan_, tile, keys, scratch_, false);
    if (scores.segments == 0) continue;
    kernel.rescale(plan_.unit, scores.max, 0, max, sum, nullptr);
    for (int i = 0; i < scores.segments; ++i) {
      const Segment& g = scores.segment[i];
      kernel.exponentials(plan_.unit, g.k1 - g.k0, g.first, g.last, max, sum, scratch_.s + g.k0 * kernel.width);
    }
  }
  for (int r = 0; r < kernel.width; ++r) {
    factor[r] = 1;
    if (!large[r]) continue;
    double total = sum[r];
    if (!p.sinks.empty())
      total += std::exp2(p.sinks[static_cast<std::size_t>(tile.head(r))] * kLog2E - double{max[r]} * plan_.unit);
    factor[r] = static_cast<float>(1 / total);
    lse[r] = max[r];
  }
}

void GradientRows::load_f32(const QueryTile& tile, const ConstView& dout_view) {
  const auto load = [&](const ConstView& x, std::int64_t d, std::int64_t padded, float* transposed, float* copy,
                        std::int64_t& ld, NonFinites& non_finites) {
    const Dims& s = x.strides;
    const float* rows = copy;
    if (x.dtype == DType::f32 && s[3] == 1 && d == padded && tile.heads == 1) {
      ld = s[2];
      rows = static_cast<const float*>(x.data) + row_offset(s, tile, 0);
    } else {
      ld = padded;
      for (int r = 0; r < tile.rows; ++r) {
        widen_elements(x.dtype, x.data, row_offset(s, tile, r), s[3], d, copy + r * padded);
        std::fill(copy + r * padded + d, copy + (r + 1) * padded, 0.0f);
      }
    }
    tile.kernels->transpose_in(rows, ld, tile.rows, d, transposed);
    if (plan_.table.all_finite(rows, ld, tile.rows, d)) return rows;
    for (int r = 0; r < tile.rows; ++r)
      for (std::int64_t c = 0; c < padded; ++c) {
        const float value = rows[r * ld + c];
        if (!std::isfinite(value)) non_finites.push_back({r, c, value});
        copy[r * padded + c] = std::isfinite(value) ? value : 0.0f;
      }
    ld = padded;
    return static_cast<const float*>(copy);
  };
  q = load(plan_.p.q, plan_.p.d_k, scratch_.d_k, scratch_.qt, q_copy_, ld_q, q_non_finites);
  dout = load(dout_view, plan_.p.d_v, scratch_.d_v, scratch_.dot, dout_copy_, ld_dout, dout_non_finites);
}

void GradientRows::load_bf16(const QueryTile& tile, const ConstView& dout_view) {
  const auto load = [&](const ConstView& x, std::int64_t d, std::int64_t padded, std::uint16_t* transposed, float* copy,
                        std::uint16_t* pairs, NonFinites& non_finites) {
    load_rows_in_pairs(x, tile, d, scratch_, transposed);
    const auto* from = static_cast<const std::uint16_t*>(x.data);
    const Dims& s = x.strides;
    const bool direct = s[3] == 1 && tile.heads == 1;
    const std::int64_t offset = row_offset(s, tile, 0);
    if (direct && plan_.table.all_finite_bf16(from + offset, s[2], tile.rows, d)) {
      plan_.table.interleave(from + offset, s[2], tile.rows, d, padded, pairs);
      return;
    }
    auto* rows = reinterpret_cast<std::uint16_t*>(copy);  // [rows][padded]
    for (int r = 0; r < tile.rows; ++r)
      for (std::int64_t c = 0; c < d; ++c) {
        const std::uint16_t bits = from[row_offset(s, tile, r) + c * s[3]];
        const float value = widen(bf16{bits});
        if (!std::isfinite(value)) non_finites.push_back({r, c, value});
        rows[r * padded + c] = std::isfinite(value) ? bits : std::uint16_t{0};
      }
    plan_.table.interleave(rows, padded, tile.rows, d, padded, pairs);
  };
  ld_q = scratch_.d_k;
  ld_dout = scratch_.d_v;
  load(plan_.p.q, plan_.p.d_k, ld_q, scratch_.qt_pairs, q_copy_, q_pairs, q_non_finites);
  load(dout_view, plan_.p.d_v, ld_dout, scratch_.dot_pairs, dout_copy_, dout_pairs, dout_non_finites);
}

TileGradients compute_gradients(const TilePlan& plan, const QueryTile& tile, const KeyTile& keys,
                                const GradientRows& rows, Scratch& scratch, std::uint64_t* bits) noexcept {
  const AttentionProblem& p = plan.p;
  const TileKernels& kernel = *tile.kernels;
  const int width = kernel.width;
  float ignored[kMaxWidth] = {};
  TileGradients g;
  g.scores = compute_scores(plan, tile, keys, scratch, true);
  if (g.scores.segments == 0) return g;
  g.careful = !(rows.finite() && keys.finite);
  if (g.careful) kernel.allowed_bits(scratch.s, keys.n, bits);
  for (int i = 0; i < g.scores.segments; ++i) {
    const Segment& part = g.scores.segment[i];
    const int n = part.k1 - part.k0;
    const std::int64_t at = part.k0 * width;
    float *s = scratch.s + at, *ds = scratch.ds + at;
    if (plan.bf16)
      kernel.bf16->scores(keys.v16 + part.k0 * keys.ldv, keys.ldv, scratch.dot_pairs, (p.d_v + 1) / 2, n, tile.rows,
                          part.first, part.last, ds, ignored);
    else
      kernel.scores(keys.v + part.k0 * keys.ldv, keys.ldv, scratch.dot, p.d_v, n, tile.rows, part.first, part.last, ds,
                    ignored);
    const float kept = static_cast<float>(p.dropout.scale);
    drop_pairs(plan, tile, keys.j0 + part.k0, n, part.first, part.last, kept, ds);
    kernel.backward_softmax(plan.unit, n, part.first, part.last, rows.lse, rows.delta, s, ds);
    drop_pairs(plan, tile, keys.j0 + part.k0, n, part.first, part.last, kept, s);
    for (int key = 0; rows.rescaled && key < n; ++key)
      for (int c = part.first * kernel.lanes; c < part.last * kernel.lanes; ++c) {
        s[key * width + c] *= rows.factor[c];
        ds[key * width + c] *= rows.factor[c];
      }
  }
  return g;
}

void finish_gradients(const TilePlan& plan, const QueryTile& tile, const TileScores& scores,
                      Scratch& scratch) noexcept {
  const TileKernels& kernel = *tile.kernels;
  const int width = kernel.width;
  for (int i = 0; i < scores.segments; ++i) {
    const Segment& part = scores.segment[i];
    const int n = part.k1 - part.k0;
    const std::int64_t at = std::int64_t{part.k0} * width;
    float *s = scratch.s + at, *ds = scratch.ds + at;
    if (plan.p.softcap > 0) {
      const float* slope = scratch.slope + at;
      for (int key = 0; key < n; ++key)
        for (int c = part.first * kernel.lanes; c < part.last * kernel.lanes; ++c) {
          float& d = ds[key * width + c];
          d = d == 0 ? 0.0f : d * slope[key * width + c];  // the slope may be NaN where masked
        }
    }
    if (plan.bf16) {
      // The column after an odd last row is its neighbour in a pair: set to 0, whatever it contained.
      for (int key = 0; tile.rows < width && key < n; ++key)
        s[key * width + tile.rows] = ds[key * width + tile.rows] = 0;
      kernel.bf16->round(s, n, part.first, part.last, scratch.p_rows + at, nullptr);
      kernel.bf16->round(ds, n, part.first, part.last, scratch.ds_rows + at, scratch.ds_pairs + at);
    }
  }
}

void sink_gradient(const TilePlan& plan, const RowStatistics& statistics, const View& dsinks) {
  const AttentionProblem& p = plan.p;
  const double unit = static_cast<double>(plan.unit);
  parallel_for(p.n_head, [&](std::int64_t h) {
    const double sink = p.sinks[static_cast<std::size_t>(h)] * kLog2E;
    double sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b)
      for (std::int64_t i = 0; i < p.q_len; ++i) {
        const double lse = static_cast<double>(statistics.lse(b, h, i)) * unit;
        if (lse < std::numeric_limits<double>::infinity() || std::isnan(lse))
          sum -= std::exp2(sink - lse) * static_cast<double>(statistics.delta(b, h, i));
      }
    const float result = static_cast<float>(sum);
    narrow_elements(dsinks.dtype, dsinks.data, h * dsinks.strides[0], 1, 1, &result);
  });
}

}  // namespace qkv
