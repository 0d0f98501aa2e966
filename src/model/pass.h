// SPDX-License-Identifier: Apache-2.0
// The context of one pass of a model: rows, memory, and how rows attend.
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

// Where dropout is applied in a layer.
enum class DropoutKind : std::uint8_t { attention_probs, attention_residual, mlp_residual };

struct Pass;

// What rows attend to: their own batch (BatchAttention) or KV caches (CachedAttention).
class Attention {
 public:
  virtual ~Attention() = default;
  // Rotates q and k, and attends. q [rows, n_head * head_dim], k and v in the compute dtype, row strides allowed ->
  // a.heads, and the values needed by backward().
  virtual void forward(Pass& pass, const LayerWeights& w, const View& q, const View& k, const View& v,
                       LayerActivations& a) = 0;
};

struct Pass {
  Device& device;
  DType operand;
  Sequences s;
  Workspace& work;
  Attention& attention;
  std::span<const RotaryTable> rotary;  // indexed by LayerWeights::rotary
  std::int64_t d_model = 0, ctx_len = 0;
  ModelDropout dropout = {};
  std::int64_t first_sequence = 0;  // its index in the step, for dropout
  TraceSink* sink = nullptr;        // null: no tracing
  ModelProfile* profile = nullptr;
  const Matrix* after_layer = nullptr;  // prefetch hint: the matrix needed after the current layer
  bool recompute = false;               // a repeated forward pass from x, q, k, v and heads, for the backward pass

  View stream(Buffer& buffer, std::int64_t width) const { return take(buffer, device.stream_type(), width); }
  View operands(Buffer& buffer, std::int64_t width) const { return take(buffer, operand, width); }
  View take(Buffer& buffer, DType type, std::int64_t width) const {
    return buffer.take(device, type, Dims{s.rows(), width});
  }
  // x [rows, width] of the stream dtype in the compute dtype: x itself, or rounded into `buffer`.
  View as_operand(const View& x, Buffer& buffer) const {
    if (x.dtype == operand) return x;
    const View y = buffer.take(device, operand, x.shape);
    device.convert(x, y);
    return y;
  }

  LayerTrace trace(std::int64_t layer) const { return {sink, layer, s.batch, s.ctx}; }  // -1: not in a layer
  Dropout dropout_at(std::int64_t layer, DropoutKind kind) const {
    if (dropout.p == 0) return {};
    return {dropout.p, dropout_seed(dropout.seed, dropout.step, static_cast<std::uint64_t>(layer),
                                    static_cast<std::uint64_t>(kind))};
  }
};

}  // namespace qkv
