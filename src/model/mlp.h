// SPDX-License-Identifier: Apache-2.0
// The multi-layer perceptron of a layer: y = activation(x W_up) W_down, or, for swiglu, with a gate x W_gate.
#pragma once

#include <cstdint>
#include <vector>

#include "model/activation.h"
#include "model/layer_trace.h"
#include "model/network_parameters.h"
#include "model/prepared.h"
#include "model/weight_gradient.h"
#include "model/workspace.h"

namespace qkv {

inline std::int64_t up_width(const ModelConfig& c) { return c.gated ? 2 * c.d_ff : c.d_ff; }

// relu's sign can be told from its result, so one buffer serves for both.
template <class T, class S>
S* activation_of(const ModelConfig& c, std::int64_t rows, RemadeActivations<T, S>& a) {
  return c.activation == Activation::relu ? a.up.get() : a.activation.take(rows * c.d_ff);
}

// mn [rows, d_model] -> the activation [rows, d_ff]; leaves up and activation in `a`
template <class T, class S>
const S* mlp_activation(const ModelConfig& c, std::int64_t rows, const PreparedLayer<T>& w, const S* mn,
                        RemadeActivations<T, S>& a, const LayerTrace& trace = {}) {
  S* up = a.up.take(rows * up_width(c));  // [rows, d_ff] or [rows, 2, d_ff]
  w.up.forward(rows, mn, w.up_bias.empty() ? nullptr : w.up_bias.data(), up);
  trace.pass(TraceSite::mlp_pre, trace.rows(up, c.d_ff, up_width(c)));
  if (c.gated)
    trace.pass(TraceSite::mlp_pre_linear, trace.rows(up + c.d_ff, c.d_ff, up_width(c)));
  S* activation = activation_of(c, rows, a);  // [rows, d_ff]
  activation_forward(c.activation, rows, c.d_ff, up, activation);
  trace.pass(TraceSite::mlp_post, trace.rows(activation, c.d_ff));
  return activation;
}

// mn [rows, d_model] -> y [rows, d_model]
template <class T, class S>
void mlp_forward(const ModelConfig& c, std::int64_t rows, const PreparedLayer<T>& w, const T* down_bias, const S* mn,
                 RemadeActivations<T, S>& a, T* y, const LayerTrace& trace = {}) {
  w.down.forward(rows, mlp_activation(c, rows, w, mn, a, trace), down_bias, y);
}

// forward: y = activation(mn W_gate + b_gate, mn W_up + b_up) W_down + b_down
// mn, dy [rows, d_model] -> dmn [rows, d_model], overwritten; the parameters' gradients go to their slots
template <class T, class S>
void mlp_backward(const ModelConfig& c, const Sequences& s, std::size_t layer, const PreparedLayer<T>& w, const S* mn,
                  RemadeActivations<T, S>& a, const S* dy, Workspace<T, S>& room, T* dmn, const GradientSlots<T>& g) {
  const std::int64_t rows = s.rows(), width = up_width(c);
  const bool gated = c.gated;
  const S* activation = activation_of(c, rows, a);               // [rows, d_ff]
  S* dup = room.dup.take(rows * width);                          // as up
  S* dactivation = gated ? room.dact.take(rows * c.d_ff) : dup;  // [rows, d_ff]
  w.down.backward_input(rows, dy, dactivation);
  activation_backward(c.activation, rows, c.d_ff, static_cast<const S*>(a.up.get()), dactivation, dup);
  const auto of = [&](auto member) { return g.of([&](auto& role) { return role.layers[layer].*member; }); };
  using Layer = LayerParameters<T*>;
  const S* dup_only = gated ? dup + c.d_ff : dup;  // [rows, d_ff] with row stride `width`
  std::vector<WeightGradient<S, T>> matrices{{c.d_ff, c.d_model, activation, c.d_ff, dy, c.d_model, of(&Layer::w_down)},
                                             {c.d_model, c.d_ff, mn, c.d_model, dup_only, width, of(&Layer::w_up)}};
  if (gated) matrices.push_back({c.d_model, c.d_ff, mn, c.d_model, dup, width, of(&Layer::w_gate)});
  add_weight_gradients<S, T>(s, g.steps, matrices);
  bias_backward(s, g.steps, c.d_model, dy, c.d_model, of(&Layer::b_down));
  bias_backward(s, g.steps, c.d_ff, dup_only, width, of(&Layer::b_up));
  if (gated) bias_backward(s, g.steps, c.d_ff, static_cast<const S*>(dup), width, of(&Layer::b_gate));
  w.up.backward_input(rows, dup, dmn);
}

}  // namespace qkv
