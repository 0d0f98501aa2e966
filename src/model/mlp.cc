// SPDX-License-Identifier: Apache-2.0
// MLP of a layer: activation(y W_up + b_up) W_down + b_down; gated: (activation(y W_gate + b_gate) * (y W_up + b_up))
// W_down + b_down.
#include <vector>

#include "model/layer.h"
#include "model/profile.h"

namespace qkv {
namespace {

using R = ParameterRole;

// relu's gradient can be computed from its result, so one buffer is enough.
bool in_place(const LayerConfig& c) { return c.activation == Activation::relu && !c.gated; }

}  // namespace

void mlp_forward(Pass& p, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& out) {
  const PartTimer timer(p.profile, &ModelProfile::mlp);
  const LayerConfig& c = *w.config;
  const LayerTrace trace = p.trace(w.layer);
  const View up = p.operands(r.up, w.up_size());  // [rows, d_ff]; gated: [rows, 2 * d_ff], gate then up
  p.device.prefetch(*w.down);
  p.device.product(y, *w.up, w.up_bias, up);
  trace.pass(TraceSite::mlp_pre, trace.by_token(columns_of(up, 0, c.d_ff)));
  if (c.gated) trace.pass(TraceSite::mlp_pre_linear, trace.by_token(columns_of(up, c.d_ff, c.d_ff)));
  const View activation = in_place(c) ? up : p.operands(r.activation, c.d_ff);  // [rows, d_ff]
  p.device.activation(c.activation, c.gated, up, activation);
  trace.pass(TraceSite::mlp_post, trace.by_token(activation));
  if (p.recompute && !w.mlp_post_norm.present) return;  // the backward pass needs nothing more
  if (p.after_layer) p.device.prefetch(*p.after_layer);
  p.device.product(activation, *w.down, w.down_bias, out);
}

void mlp_backward(Pass& p, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& dout,
                  const View& dy, const ParameterTable& table, const GradientSlots& g) {
  const PartTimer timer(p.profile, &ModelProfile::mlp);
  const LayerConfig& c = *w.config;
  const View up = r.up.get(), activation = in_place(c) ? up : r.activation.get();   // [rows, d_ff]
  const View dup = p.operands(p.work.dup, w.up_size());                             // like up
  const View dactivation = c.gated ? p.operands(p.work.dactivation, c.d_ff) : dup;  // [rows, d_ff]
  p.device.product_backward(dout, *w.down, dactivation);
  p.device.activation_backward(c.activation, c.gated, up, dactivation, dup);
  const auto of = [&](R role) { return g.of(table.find(role, w.layer)); };
  const View dgate = columns_of(dup, 0, c.d_ff);
  const View dlinear = columns_of(dup, c.gated ? c.d_ff : 0, c.d_ff);  // [rows, d_ff], row stride up_size
  std::vector<WeightGradient> matrices{{activation, dout, of(R::w_down)}, {y, dlinear, of(R::w_up)}};
  if (c.gated) matrices.push_back({y, dgate, of(R::w_gate)});
  p.device.weight_gradients(p.s, g.steps, matrices);
  p.device.bias_gradient(p.s, g.steps, dout, of(R::b_down));
  p.device.bias_gradient(p.s, g.steps, dlinear, of(R::b_up));
  if (c.gated) p.device.bias_gradient(p.s, g.steps, dgate, of(R::b_gate));
  p.device.product_backward(dup, *w.up, dy);
}

}  // namespace qkv
