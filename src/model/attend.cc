// SPDX-License-Identifier: Apache-2.0
#include "model/attend.h"

#include <algorithm>

namespace qkv {
namespace {

// x [rows, heads * d], row strides allowed, viewed as [batch, heads, ctx, d]
View by_head(const Sequences& s, const View& x, std::int64_t heads) {
  const std::int64_t d = x.shape[1] / heads, stride = x.strides[0];
  return {x.data, x.dtype, Dims{s.batch, heads, s.ctx, d},
          Dims{std::max<std::int64_t>(s.ctx, 1) * stride, d, stride, 1}};
}

struct HeadViews {
  View q, k,
      v;  // [batch, n_head, ctx, head_dim], [batch, n_kv_head, ctx, head_dim], [batch, n_kv_head, ctx, v_head_dim]
  HeadViews(const LayerConfig& c, const Sequences& s, const Heads& x)
      : q(by_head(s, x.q, c.n_head)), k(by_head(s, x.k, c.n_kv_head)), v(by_head(s, x.v, c.n_kv_head)) {}
};

// Attention options from a layer's configuration; the caller sets the positions.
AttentionOptions layer_options(const LayerWeights& w) {
  const LayerConfig& c = *w.config;
  AttentionOptions options;
  options.window_left = c.window_left;
  if (c.attention_scale != 0) options.scale = c.attention_scale;
  options.softcap = c.softcap;
  if (c.alibi) options.alibi_slopes = w.slopes;
  options.sinks = w.sinks;
  return options;
}

AttentionOptions batch_options(const Pass& p, const LayerWeights& w) {
  AttentionOptions options = layer_options(w);
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.q_lengths.assign(p.s.lengths.begin(), p.s.lengths.end());
  options.kv_lengths = options.q_lengths;
  options.dropout = {p.dropout.p, p.dropout_at(w.layer, DropoutKind::attention_probs).seed, p.first_sequence};
  return options;
}

void rotate(Pass& p, const LayerWeights& w, const Sequences& s, std::int64_t first_position, bool back, const View& q,
            const View& k) {
  const LayerConfig& c = *w.config;
  if (c.positions != Positions::rotary) return;
  const RotaryTable& table = p.rotary[w.rotary];
  const std::int64_t rotated = rotated_dims(c);
  // Adjacent q and k are rotated in one call.
  const std::int64_t gap = static_cast<const char*>(k.data) - static_cast<const char*>(q.data);
  if (q.strides[0] == k.strides[0] && gap == q.shape[1] * static_cast<std::int64_t>(dtype_size(q.dtype)))
    return p.device.rotary(s, table, {c.n_head + c.n_kv_head, c.head_dim, rotated}, first_position, back, q);
  p.device.rotary(s, table, {c.n_head, c.head_dim, rotated}, first_position, back, q);
  p.device.rotary(s, table, {c.n_kv_head, c.head_dim, rotated}, first_position, back, k);
}

// Views [batch, heads, ctx, d], passed to the sink in token order.
void trace_heads(const LayerTrace& trace, TraceSite site, const View& heads) {
  if (trace.sink) trace.pass(site, swap_axes(heads, 1, 2));
}

// Attention that passes its matrices to the sink.
void traced_attention(Pass& p, const HeadViews& x, const AttentionOptions& options, const AttentionResults& results,
                      const LayerTrace& trace) {
  Tensor products, scaled, scores, pattern;  // [batch, n_head, ctx, ctx]
  const auto wanted = [&](TraceSite site, Tensor& matrix) {
    if (!trace.wants(site)) return View{};
    matrix = Tensor(Dims{x.q.shape[0], x.q.shape[1], x.q.shape[2], x.k.shape[2]}, p.device.stream_type());
    return matrix.view();
  };
  AttentionSteps steps;
  steps.products = wanted(TraceSite::products, products);
  steps.scores = wanted(TraceSite::scaled, scaled);
  steps.masked = wanted(TraceSite::scores, scores);
  steps.probs = wanted(TraceSite::pattern, pattern);
  p.device.attention_steps(x.q, x.k, x.v, options, steps, results);
  trace.show(TraceSite::products, products);
  trace.show(TraceSite::scaled, scaled);
  trace.show(TraceSite::scores, scores);
  trace.show(TraceSite::pattern, pattern);
}

}  // namespace

void BatchAttention::forward(Pass& p, const LayerWeights& w, const View& q, const View& k, const View& v,
                             LayerActivations& a) {
  const LayerConfig& c = *w.config;
  const LayerTrace trace = p.trace(w.layer);
  const HeadViews x(c, p.s, {q, k, v});
  trace_heads(trace, TraceSite::q, x.q);
  trace_heads(trace, TraceSite::k, x.k);
  trace_heads(trace, TraceSite::v, x.v);
  rotate(p, w, p.s, 0, false, q, k);
  if (c.positions == Positions::rotary) {
    trace_heads(trace, TraceSite::rot_q, x.q);
    trace_heads(trace, TraceSite::rot_k, x.k);
  }
  AttentionResults results;
  results.out = by_head(p.s, a.heads.get(), c.n_head);
  results.lse = a.lse.take(p.device, p.device.stream_type(), Dims{p.s.batch, c.n_head, p.s.ctx});
  if (trace.wants_matrices())
    traced_attention(p, x, batch_options(p, w), results, trace);
  else
    p.device.attention(x.q, x.k, x.v, batch_options(p, w), results);
  trace_heads(trace, TraceSite::z, results.out);
}

void attend_backward(Pass& p, const LayerWeights& w, const Heads& heads, const LayerActivations& a, const View& dheads,
                     const Heads& dheads_in, const SlotPointers& dsinks, const GradientSlots& g) {
  const LayerConfig& c = *w.config;
  const HeadViews x(c, p.s, heads), dx(c, p.s, dheads_in);
  const View out = by_head(p.s, a.heads.get(), c.n_head), dout = by_head(p.s, dheads, c.n_head);
  AttentionGradients gradients;
  gradients.dq = dx.q;
  gradients.dk = dx.k;
  gradients.dv = dx.v;
  p.device.attention_backward(x.q, x.k, x.v, out, a.lse.get(), dout, batch_options(p, w), gradients);
  if (w.sinks) p.device.sink_gradient(p.s, g.steps, out, dout, a.lse.get(), w.sinks, dsinks);
  rotate(p, w, p.s, 0, true, dheads_in.q, dheads_in.k);
}

void CachedAttention::forward(Pass& p, const LayerWeights& w, const View& q, const View& k, const View& v,
                              LayerActivations& a) {
  const LayerConfig& c = *w.config;
  const AttentionOptions options = layer_options(w);
  const auto one = [&](std::int64_t first, const DecodePart& part) {
    const auto count = static_cast<std::int64_t>(part.tokens.size());
    const Sequences s{1, count};
    KvCache& cache = part.state->layers[static_cast<std::size_t>(w.layer)];
    const View own_q = rows_of(q, first, count), own_k = rows_of(k, first, count);
    rotate(p, w, s, cache.first_key() + cache.size(), false, own_q, own_k);
    const HeadViews x(c, s, {own_q, own_k, rows_of(v, first, count)});
    p.device.attend(cache, x.q, x.k, x.v, options, by_head(s, rows_of(a.heads.get(), first, count), c.n_head));
  };
  const bool single =
      std::all_of(parts_.begin(), parts_.end(), [](const DecodePart& part) { return part.tokens.size() == 1; });
  if (single)  // row i belongs to part i
    return p.device.for_each(static_cast<std::int64_t>(parts_.size()),
                             [&](std::int64_t i) { one(i, parts_[static_cast<std::size_t>(i)]); });
  std::int64_t first = 0;
  for (const DecodePart& part : parts_) {
    one(first, part);
    first += static_cast<std::int64_t>(part.tokens.size());
  }
}

}  // namespace qkv
