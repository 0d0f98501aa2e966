// SPDX-License-Identifier: Apache-2.0
// What one pass of a model works on: the rows at hand, memory, and how rows attend.
#pragma once

#include <cstdint>
#include <span>

#include "core/dropout.h"
#include "device/device.h"
#include "model/activations.h"
#include "model/gradient_slots.h"
#include "model/layer_trace.h"
#include "model/layer_weights.h"
#include "qkv/model.h"

namespace qkv {

// Where a layer drops.
enum class DropoutKind : std::uint8_t { attention_probs, attention_residual, mlp_residual };

struct Pass;

// How the rows at hand attend: within their batch (batch_attention.cc), or to what caches hold (cached_attention.cc).
class Attention {
 public:
  virtual ~Attention() = default;
  // Rotates q and k, and attends. q [rows, n_head * head_dim], k and v of the operand type, row strides allowed ->
  // a.heads, and what backward() needs.
  virtual void forward(Pass& pass, const LayerWeights& w, const View& q, const View& k, const View& v,
                       LayerActivations& a) = 0;
};

struct Pass {
  Device& device;
  DType operand;
  Sequences s;
  Workspace& work;
  Attention& attention;
  std::span<const RotaryTable> rotary;  // by LayerWeights::rotary
  std::int64_t d_model = 0, ctx_len = 0;
  ModelDropout dropout = {};
  std::int64_t first_sequence = 0;  // its number in the step, for dropout
  TraceSink* sink = nullptr;        // null: no tracing
  ModelProfile* profile = nullptr;
  const Matrix* after_layer = nullptr;  // what is read after the layer at hand: a hint
  bool recompute = false;               // a forward pass again, from x, q, k, v and heads, for the backward pass

  View stream(Buffer& buffer, std::int64_t width) const { return take(buffer, device.stream_type(), width); }
  View operands(Buffer& buffer, std::int64_t width) const { return take(buffer, operand, width); }
  View take(Buffer& buffer, DType type, std::int64_t width) const {
    return buffer.take(device, type, Dims{s.rows(), width});
  }
  // x [rows, width] of the stream type as an operand: itself, or rounded into `buffer`.
  View as_operand(const View& x, Buffer& buffer) const {
    if (x.dtype == operand) return x;
    const View y = buffer.take(device, operand, x.shape);
    device.convert(x, y);
    return y;
  }

  LayerTrace trace(std::int64_t layer) const { return {sink, layer, s.batch, s.ctx}; }  // -1: of no layer
  Dropout dropout_at(std::int64_t layer, DropoutKind kind) const {
    if (dropout.p == 0) return {};
    return {dropout.p, dropout_seed(dropout.seed, dropout.step, static_cast<std::uint64_t>(layer),
                                    static_cast<std::uint64_t>(kind))};
  }
};

}  // namespace qkv
