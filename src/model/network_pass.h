// SPDX-License-Identifier: Apache-2.0
// What one pass of a network works on; shared by network.cc and network_backward.cc.
#pragma once

#include "core/dropout.h"
#include "model/layer_trace.h"
#include "model/network.h"
#include "qkv/attention.h"

namespace qkv {

template <class T, class S>
struct Network<T, S>::Pass {
  const ModelParameters<const T*>& p;
  Sequences s;
  std::span<const std::int32_t> tokens;  // [batch, ctx]
  bool keep;                             // activations, for the backward pass
  ModelDropout dropout = {};
  std::int64_t first_sequence = 0;  // its number in the step, for dropout
  TraceSink* sink = nullptr;        // null: nobody looks

  LayerTrace trace(std::size_t layer) const { return {sink, static_cast<std::int64_t>(layer), s.batch, s.ctx}; }

  LayerTrace trace_around() const { return {sink, -1, s.batch, s.ctx}; }  // what belongs to no layer

  Dropout at(std::size_t layer, DropoutKind kind) const {
    if (dropout.p == 0) return {};
    return {dropout.p, dropout_seed(dropout.seed, dropout.step, layer, static_cast<std::uint64_t>(kind))};
  }
  AttentionDropout of_attention(std::size_t layer) const {
    return {dropout.p, at(layer, DropoutKind::attention_probs).seed, first_sequence};
  }
};

}  // namespace qkv
