// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_gradients.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/parallel.h"

namespace qkv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int64_t row_at(const Dims& s, std::int64_t b, std::int64_t h, std::int64_t i) noexcept {
  return b * s[0] + h * s[1] + i * s[2];
}

}  // namespace

RowStatistics::RowStatistics(const AttentionProblem& p, const ConstView& out, const ConstView& lse,
                             const ConstView& dout)
    : n_head_(p.n_head), q_len_(p.q_len), lse_({p.batch, p.n_head, p.q_len}), delta_({p.batch, p.n_head, p.q_len}) {
  const KernelTable& table = kernels();
  const float to_units = static_cast<float>(kLog2E / static_cast<double>(score_units(p).unit));
  const std::int64_t grain = std::max<std::int64_t>(1, 4096 / p.d_v);
  parallel_ranges(p.batch * p.n_head * p.q_len, grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> a(static_cast<std::size_t>(p.d_v)), b(a);
    for (std::int64_t r = begin; r < end; ++r) {
      const std::int64_t i = r % p.q_len, h = r / p.q_len % p.n_head, batch = r / p.q_len / p.n_head;
      lse_.data()[r] = kInfinity;
      if (i >= p.sequences[static_cast<std::size_t>(batch)].q_len) continue;
      float natural = 0;
      widen_elements(table, lse.dtype, lse.data, row_at(lse.strides, batch, h, i), 1, 1, &natural);
      if (natural == -kInfinity) continue;
      lse_.data()[r] = natural * to_units;
      widen_elements(table, out.dtype, out.data, row_at(out.strides, batch, h, i), out.strides[3], p.d_v, a.data());
      widen_elements(table, dout.dtype, dout.data, row_at(dout.strides, batch, h, i), dout.strides[3], p.d_v, b.data());
      delta_.data()[r] = table.dot(a.data(), b.data(), p.d_v);
    }
  });
}

GradientRows::GradientRows(const AttentionProblem& p, Scratch& scratch)
    : p_(p),
      scratch_(scratch),
      q_copy_(scratch.take(kMaxWidth * scratch.d_k_padded)),
      dout_copy_(scratch.take(kMaxWidth * scratch.d_v_padded)) {}

void GradientRows::load(const QueryTile& tile, const RowStatistics& statistics, const ConstView& dout_view) {
  const KernelTable& table = kernels();
  const auto natural = [&](const ConstView& x, std::int64_t d, std::int64_t padded, float* copy, std::int64_t& ld) {
    const Dims& s = x.strides;
    if (x.dtype == DType::f32 && s[3] == 1 && d == padded && tile.heads == 1) {
      ld = s[2];
      return static_cast<const float*>(x.data) + row_at(s, tile.b, tile.first_head, tile.first_query);
    }
    ld = padded;
    for (int r = 0; r < tile.rows; ++r) {
      widen_elements(table, x.dtype, x.data, row_at(s, tile.b, tile.head(r), tile.query(r)), s[3], d,
                     copy + r * padded);
      std::fill(copy + r * padded + d, copy + (r + 1) * padded, 0.0f);
    }
    return static_cast<const float*>(copy);
  };
  q = natural(p_.q, p_.d_k, scratch_.d_k_padded, q_copy_, ld_q);
  dout = natural(dout_view, p_.d_v, scratch_.d_v_padded, dout_copy_, ld_dout);
  tile.kernels->transpose_in(q, ld_q, tile.rows, p_.d_k, score_units(p_).query_factor, scratch_.qt);
  tile.kernels->transpose_in(dout, ld_dout, tile.rows, p_.d_v, 1.0f, scratch_.dot);
  finite = table.all_finite(q, ld_q, tile.rows, p_.d_k) && table.all_finite(dout, ld_dout, tile.rows, p_.d_v);
  for (int r = 0; r < tile.kernels->width; ++r) {
    const bool real = r < tile.rows;
    lse[r] = real ? statistics.lse(tile.b, tile.head(r), tile.query(r)) : kInfinity;
    delta[r] = real ? statistics.delta(tile.b, tile.head(r), tile.query(r)) : 0.0f;
  }
}

TileGradients compute_gradients(const AttentionProblem& p, const QueryTile& tile, const KeyTile& keys,
                                const GradientRows& rows, Scratch& scratch, std::uint64_t* bits) noexcept {
  const TileKernels& kernel = *tile.kernels;
  const int width = kernel.width;
  const float unit = score_units(p).unit;
  float ignored[kMaxWidth] = {};
  TileGradients g;
  g.scores = compute_scores(p, tile, keys, scratch.qt, scratch, scratch.s, scratch.slope);
  if (g.scores.segments == 0) return g;
  g.careful = g.scores.partial && !(rows.finite && kernels().all_finite(keys.k, keys.ldk, keys.n, p.d_k) &&
                                    kernels().all_finite(keys.v, keys.ldv, keys.n, p.d_v));
  if (g.careful) kernel.allowed_bits(scratch.s, keys.n, bits);
  for (int i = 0; i < g.scores.segments; ++i) {
    const Segment& part = g.scores.segment[i];
    const int n = part.k1 - part.k0;
    float *s = scratch.s + part.k0 * width, *ds = scratch.ds + part.k0 * width;
    kernel.scores(keys.v + part.k0 * keys.ldv, keys.ldv, scratch.dot, p.d_v, n, part.first, part.last, ds, ignored);
    kernel.backward_softmax(unit, n, part.first, part.last, rows.lse, rows.delta, s, ds);
    if (p.softcap > 0) {
      const float* slope = scratch.slope + part.k0 * width;
      for (int key = 0; key < n; ++key)
        for (int c = part.first * kernel.lanes; c < part.last * kernel.lanes; ++c) {
          float& d = ds[key * width + c];
          d = d == 0 ? 0.0f : d * slope[key * width + c];  // the slope may be NaN where reading is not allowed
        }
    }
  }
  return g;
}

void sink_gradient(const AttentionProblem& p, const RowStatistics& statistics, const View& dsinks) {
  const double unit = static_cast<double>(score_units(p).unit);
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
