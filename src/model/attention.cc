// SPDX-License-Identifier: Apache-2.0
// Attention of a layer: attend(rope(norm(y W_Q + b_Q)), rope(norm(y W_K + b_K)), y W_V + b_V) W_O + b_O; norms only
// with QK-norm.
#include <algorithm>
#include <array>
#include <initializer_list>

#include "model/attend.h"
#include "model/layer.h"
#include "model/profile.h"

namespace qkv {
namespace {

using R = ParameterRole;

// q, k and v of a layer, or their gradients, concatenated in `all` [rows, q + k + v].
struct Projections {
  View q, k, v;  // [rows, q], [rows, k], [rows, v] with the row stride of `all`
  Projections(const LayerWeights& w, const View& all)
      : q(columns_of(all, 0, w.q_size())),
        k(columns_of(all, w.q_size(), w.k_size())),
        v(columns_of(all, w.q_size() + w.k_size(), w.v_size())) {}
};

struct Groups {
  std::int64_t count, width;
};
// QK-norm groups for a token's queries or keys with `heads` heads.
Groups groups_of(const LayerConfig& c, std::int64_t heads) {
  if (c.qk_norm == QkNorm::all_heads) return {1, heads * c.head_dim};
  return {heads, c.head_dim};
}

// q and k before rotation: the projections, or their normalized values in a.qk.
Projections normalized(Pass& p, const LayerWeights& w, LayerActivations& a) {
  const LayerConfig& c = *w.config;
  Projections x(w, a.qkv.get());
  if (!w.q_norm.present) return x;
  const Groups q = groups_of(c, c.n_head), k = groups_of(c, c.n_kv_head);
  const View qk = p.operands(a.qk, w.q_size() + w.k_size());  // [rows, q + k]
  const View nq = columns_of(qk, 0, w.q_size()), nk = columns_of(qk, w.q_size(), w.k_size());
  p.device.group_norm(w.q_norm.parameters, q.count, q.width, x.q, nq, p.stream(a.q_stats, q.count));
  p.device.group_norm(w.k_norm.parameters, k.count, k.width, x.k, nk, p.stream(a.k_stats, k.count));
  x.q = nq;
  x.k = nk;
  return x;
}

}  // namespace

void attention_forward(Pass& p, const LayerWeights& w, LayerActivations& a, const View& y, const View& out) {
  if (!p.recompute) {
    const View qkv = p.operands(a.qkv, w.qkv_size());  // [rows, q + k + v]
    p.device.prefetch(*w.wo);
    {
      const PartTimer timer(p.profile, &ModelProfile::projections);
      p.device.product(y, *w.qkv, w.qkv_bias, qkv);
    }
    const PartTimer timer(p.profile, &ModelProfile::attention);
    const Projections x = normalized(p, w, a);
    p.operands(a.heads, w.heads_size());  // [rows, n_head * v_head_dim]
    p.attention.forward(p, w, x.q, x.k, x.v, a);
    p.device.prefetch(*w.up);
  }
  const PartTimer timer(p.profile, &ModelProfile::projections);
  p.device.product(a.heads.get(), *w.wo, w.output_bias, out);
}

void attention_backward(Pass& p, const LayerWeights& w, LayerActivations& a, const View& y, const View& dout,
                        const View& dy, const ParameterTable& table, const GradientSlots& g) {
  const LayerConfig& c = *w.config;
  const auto of = [&](R role) { return g.of(table.find(role, w.layer)); };
  const View dheads = p.operands(p.work.dheads, w.heads_size());  // [rows, n_head * v_head_dim]
  const View dqkv = p.operands(p.work.dqkv, w.qkv_size());        // [rows, q + k + v]
  const Projections x(w, a.qkv.get()), d(w, dqkv);
  {
    const PartTimer timer(p.profile, &ModelProfile::projections);
    p.device.product_backward(dout, *w.wo, dheads);
  }
  {
    const PartTimer timer(p.profile, &ModelProfile::attention);
    const View qk = w.q_norm.present ? a.qk.get() : a.qkv.get();
    const View q = columns_of(qk, 0, w.q_size()), k = columns_of(qk, w.q_size(), w.k_size());
    attend_backward(p, w, {q, k, x.v}, a, dheads, {d.q, d.k, d.v}, of(R::sinks), g);
    if (w.q_norm.present) {
      const Groups gq = groups_of(c, c.n_head), gk = groups_of(c, c.n_kv_head);
      p.device.group_norm_backward(p.s, g.steps, w.q_norm.parameters, gq.count, gq.width, x.q, a.q_stats.get(), d.q,
                                   of(R::q_norm_gain));
      p.device.group_norm_backward(p.s, g.steps, w.k_norm.parameters, gk.count, gk.width, x.k, a.k_stats.get(), d.k,
                                   of(R::k_norm_gain));
    }
  }
  const PartTimer timer(p.profile, &ModelProfile::projections);
  const std::array<WeightGradient, 4> matrices{
      {{y, d.q, of(R::wq)}, {y, d.k, of(R::wk)}, {y, d.v, of(R::wv)}, {a.heads.get(), dout, of(R::wo)}}};
  p.device.weight_gradients(p.s, g.steps, matrices);
  p.device.bias_gradient(p.s, g.steps, d.q, of(R::bq));
  p.device.bias_gradient(p.s, g.steps, d.k, of(R::bk));
  p.device.bias_gradient(p.s, g.steps, d.v, of(R::bv));
  p.device.bias_gradient(p.s, g.steps, dout, of(R::bo));
  p.device.product_backward(dqkv, *w.qkv, dy);
}

}  // namespace qkv
