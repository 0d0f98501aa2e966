// SPDX-License-Identifier: Apache-2.0
// The multi-layer perceptron of a layer: y = activation(x W_up) W_down, or, for swiglu, with a gate x W_gate.
#pragma once

#include <cstdint>

#include "model/activation.h"
#include "model/linear.h"
#include "model/parameters.h"
#include "model/workspace.h"

namespace qkv {

// xn [rows, d_model] -> y [rows, d_model]; leaves gate, up and activation in `a`
template <class T>
void mlp_forward(const ModelConfig& c, std::int64_t rows, const LayerParameters<const T*>& p, const T* xn,
                 LayerActivations<T>& a, T* y) {
  const std::int64_t size = rows * c.d_ff;
  T* gate = nullptr;        // [rows, d_ff]
  T* up = a.up.take(size);  // [rows, d_ff]
  if (c.activation == Activation::swiglu) {
    gate = a.gate.take(size);
    linear_forward(rows, c.d_model, c.d_ff, xn, p.w_gate, p.b_gate, gate);
  }
  linear_forward(rows, c.d_model, c.d_ff, xn, p.w_up, p.b_up, up);
  // relu's sign can be told from its result, so one buffer serves for both.
  T* activation = c.activation == Activation::relu ? up : a.activation.take(size);  // [rows, d_ff]
  activation_forward(c.activation, size, gate, up, activation);
  linear_forward(rows, c.d_ff, c.d_model, activation, p.w_down, p.b_down, y);
}

// forward: y = activation(xn W_gate + b_gate, xn W_up + b_up) W_down + b_down
// xn, dy [rows, d_model] -> dxn [rows, d_model], overwritten; the parameters' gradients are added to g
template <class T>
void mlp_backward(const ModelConfig& c, const Sequences& s, const LayerParameters<const T*>& p, const T* xn,
                  LayerActivations<T>& a, const T* dy, Workspace<T>& w, T* dxn, const LayerParameters<T*>& g) {
  const std::int64_t rows = s.rows(), size = rows * c.d_ff;
  const bool gated = c.activation == Activation::swiglu;
  const T* activation = c.activation == Activation::relu ? a.up.get() : a.activation.get();  // [rows, d_ff]
  T* dup = w.dup.take(size);                                                                 // [rows, d_ff]
  T* dgate = gated ? w.dgate.take(size) : nullptr;                                           // [rows, d_ff]
  linear_backward_weights(s, c.d_ff, c.d_model, activation, dy, g.w_down, g.b_down);
  linear_backward_input(rows, c.d_ff, c.d_model, dy, p.w_down, T{0}, dup);  // d(activation)
  activation_backward(c.activation, size, gated ? a.gate.get() : nullptr, a.up.get(), dup, dgate, dup);
  if (gated) linear_backward_weights(s, c.d_model, c.d_ff, xn, dgate, g.w_gate, g.b_gate);
  linear_backward_weights(s, c.d_model, c.d_ff, xn, dup, g.w_up, g.b_up);
  linear_backward_input(rows, c.d_model, c.d_ff, dup, p.w_up, T{0}, dxn);
  if (gated) linear_backward_input(rows, c.d_model, c.d_ff, dgate, p.w_gate, T{1}, dxn);
}

}  // namespace qkv
