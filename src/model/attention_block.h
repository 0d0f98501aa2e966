// SPDX-License-Identifier: Apache-2.0
// The attention of a layer, between its norm and the stream: y = attention(x W_Q, x W_K, x W_V) W_O.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "model/layer_trace.h"
#include "model/operand.h"
#include "model/network_parameters.h"
#include "model/prepared.h"
#include "model/profile.h"
#include "model/rotary.h"
#include "model/weight_gradient.h"
#include "model/workspace.h"
#include "qkv/attention.h"

namespace qkv {

// q, k and v of a token stand side by side: q [n_head, head_dim], k [n_kv_head, head_dim], v [n_kv_head, v_head_dim].
struct QkvSizes {
  std::int64_t q, k, v, heads;  // heads: [n_head, v_head_dim], what attention gives
  std::int64_t all() const noexcept { return q + k + v; }
};
inline QkvSizes qkv_sizes(const ModelConfig& c) {
  return {c.n_head * c.head_dim, c.n_kv_head * c.head_dim, c.n_kv_head * c.v_head_dim, c.n_head * c.v_head_dim};
}

// data: the first head of the first token, tokens `stride` elements apart, seen as [batch, heads, ctx, d].
template <class T>
View by_head(T* data, const Sequences& s, std::int64_t stride, std::int64_t heads, std::int64_t d) {
  return {data, dtype_of<T>, Dims{s.batch, heads, s.ctx, d},
          Dims{std::max<std::int64_t>(s.ctx, 1) * stride, d, stride, 1}};
}

// The three views of a qkv buffer [batch, ctx, q + k + v].
template <class S>
struct QkvViews {
  View q, k,
      v;  // [batch, n_head, ctx, head_dim], [batch, n_kv_head, ctx, head_dim], [batch, n_kv_head, ctx, v_head_dim]
  QkvViews(const ModelConfig& c, const Sequences& s, S* qkv) {
    const QkvSizes size = qkv_sizes(c);
    q = by_head(qkv, s, size.all(), c.n_head, c.head_dim);
    k = by_head(qkv + size.q, s, size.all(), c.n_kv_head, c.head_dim);
    v = by_head(qkv + size.q + size.k, s, size.all(), c.n_kv_head, c.v_head_dim);
  }
};

inline AttentionOptions causal_options(const Sequences& s, const AttentionDropout& dropout) {
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.q_lengths.assign(s.lengths.begin(), s.lengths.end());
  options.kv_lengths = options.q_lengths;
  options.dropout = dropout;
  return options;
}

template <class T, class S>
void turn(const ModelConfig& c, const Sequences& s, const RotaryTable<T>& table, std::int64_t first_position, bool back,
          S* qkv) {
  if (c.positions != Positions::rotary) return;
  const QkvSizes size = qkv_sizes(c);
  // q and k stand side by side and turn alike: n_head + n_kv_head heads.
  rotary(s, c.n_head + c.n_kv_head, size.all(), table, first_position, back, qkv);
}

// Attention whose matrices, of type `dtype`, go to the sink; f32 or f64 as the path sums.
inline void traced_attention(const ConstView& q, const ConstView& k, const ConstView& v,
                             const AttentionOptions& options, const AttentionResults& results, DType dtype,
                             const LayerTrace& trace) {
  Tensor products, scaled, scores, pattern;  // [batch, n_head, ctx, ctx]
  const auto wanted = [&](TraceSite site, Tensor& matrix) {
    if (!trace.wants(site)) return View{};
    matrix = Tensor(Dims{q.shape[0], q.shape[1], q.shape[2], k.shape[2]}, dtype);
    return matrix.view();
  };
  AttentionSteps steps;
  steps.products = wanted(TraceSite::products, products);
  steps.scores = wanted(TraceSite::scaled, scaled);
  steps.masked = wanted(TraceSite::scores, scores);
  steps.probs = wanted(TraceSite::pattern, pattern);
  attention_steps(q, k, v, options, steps, results);
  trace.show(TraceSite::products, products);
  trace.show(TraceSite::scaled, scaled);
  trace.show(TraceSite::scores, scores);
  trace.show(TraceSite::pattern, pattern);
}

// Views [batch, heads, ctx, d], shown token by token.
struct TracedHeads {
  TraceSite site;
  View view;
};
inline void trace_heads(const LayerTrace& trace, std::initializer_list<TracedHeads> list) {
  if (!trace.sink) return;
  for (const TracedHeads& heads : list) trace.pass(heads.site, swap_axes(heads.view, 1, 2));
}

// xn [rows, d_model] -> y [rows, d_model]; leaves qkv, heads and lse in `a`.
template <class T, class S>
void attention_block_forward(const ModelConfig& c, const Sequences& s, const PreparedLayer<T>& w, const T* out_bias,
                             const RotaryTable<T>& table, const S* xn, LayerActivations<T, S>& a,
                             const AttentionDropout& dropout, ModelProfile* profile, T* y,
                             const LayerTrace& trace = {}) {
  const std::int64_t rows = s.rows();
  const QkvSizes size = qkv_sizes(c);
  S* qkv = a.qkv.take(rows * size.all());      // [rows, q + k + v]
  S* heads = a.heads.take(rows * size.heads);  // [rows, n_head, v_head_dim]
  {
    const PartTimer timer(profile, &ModelProfile::projections);
    w.qkv.forward(rows, xn, w.qkv_bias.empty() ? nullptr : w.qkv_bias.data(), qkv);
  }
  {
    const PartTimer timer(profile, &ModelProfile::attention);
    const QkvViews<S> views(c, s, qkv);
    trace_heads(trace, {{TraceSite::q, views.q}, {TraceSite::k, views.k}, {TraceSite::v, views.v}});
    turn(c, s, table, 0, false, qkv);
    if (c.positions == Positions::rotary)
      trace_heads(trace, {{TraceSite::rot_q, views.q}, {TraceSite::rot_k, views.k}});
    AttentionResults results;
    results.out = by_head(heads, s, size.heads, c.n_head, c.v_head_dim);
    results.lse = view(a.lse.take(s.batch * c.n_head * s.ctx), Dims{s.batch, c.n_head, s.ctx});
    if (trace.wants_matrices())
      traced_attention(views.q, views.k, views.v, causal_options(s, dropout), results, dtype_of<T>, trace);
    else
      attention(views.q, views.k, views.v, causal_options(s, dropout), results);
    trace_heads(trace, {{TraceSite::z, results.out}});
  }
  const PartTimer timer(profile, &ModelProfile::projections);
  w.wo.forward(rows, static_cast<const S*>(heads), out_bias, y);
}

// forward: heads = attention(q, k, v) with q = turn(xn W_Q), k = turn(xn W_K), v = xn W_V;  y = heads W_O
// xn, dy [rows, d_model] -> dxn [rows, d_model], overwritten; the parameters' gradients go to their slots
template <class T, class S>
void attention_block_backward(const ModelConfig& c, const Sequences& s, std::size_t layer, const PreparedLayer<T>& w,
                              const RotaryTable<T>& table, const S* xn, LayerActivations<T, S>& a, const S* dy,
                              Workspace<T, S>& room, const AttentionDropout& dropout, ModelProfile* profile, T* dxn,
                              const GradientSlots<T>& g) {
  const std::int64_t rows = s.rows();
  const QkvSizes size = qkv_sizes(c);
  S* dheads = room.dheads.take(rows * size.heads);  // [rows, n_head, v_head_dim]
  S* dqkv = room.dqkv.take(rows * size.all());      // [rows, q + k + v]
  {
    const PartTimer timer(profile, &ModelProfile::projections);
    w.wo.backward_input(rows, dy, dheads);
  }
  {
    const PartTimer timer(profile, &ModelProfile::attention);
    const QkvViews<S> views(c, s, a.qkv.get()), slopes(c, s, dqkv);
    AttentionGradients gradients;
    gradients.dq = slopes.q;
    gradients.dk = slopes.k;
    gradients.dv = slopes.v;
    attention_backward(views.q, views.k, views.v, by_head(a.heads.get(), s, size.heads, c.n_head, c.v_head_dim),
                       view(a.lse.get(), Dims{s.batch, c.n_head, s.ctx}),
                       by_head(dheads, s, size.heads, c.n_head, c.v_head_dim), causal_options(s, dropout), gradients);
    turn(c, s, table, 0, true, dqkv);
  }
  const PartTimer timer(profile, &ModelProfile::projections);
  const auto of = [&](auto member) { return g.of([&](auto& role) { return role.layers[layer].*member; }); };
  using Layer = LayerParameters<T*>;
  const S *dk = dqkv + size.q, *dv = dk + size.k;  // [rows, ...] with the row stride of dqkv
  const S* heads = a.heads.get();
  const std::int64_t d = c.d_model, all = size.all();
  const std::array<WeightGradient<S, T>, 4> matrices{{{d, size.q, xn, d, dqkv, all, of(&Layer::wq)},
                                                      {d, size.k, xn, d, dk, all, of(&Layer::wk)},
                                                      {d, size.v, xn, d, dv, all, of(&Layer::wv)},
                                                      {size.heads, d, heads, size.heads, dy, d, of(&Layer::wo)}}};
  add_weight_gradients<S, T>(s, g.steps, matrices);
  bias_backward(s, g.steps, size.q, static_cast<const S*>(dqkv), all, of(&Layer::bq));
  bias_backward(s, g.steps, size.k, dk, all, of(&Layer::bk));
  bias_backward(s, g.steps, size.v, dv, all, of(&Layer::bv));
  bias_backward(s, g.steps, d, dy, d, of(&Layer::bo));
  w.qkv.backward_input(rows, static_cast<const S*>(dqkv), dxn);
}

}  // namespace qkv
