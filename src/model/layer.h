// SPDX-License-Identifier: Apache-2.0
// One layer of a decoder, forward and backward: the only definition. Training, logits, recomputation, prefill, decoding
// and traces all run these functions; what differs is in the Pass.
#pragma once

#include "model/pass.h"

namespace qkv {

// The residual stream between blocks: its value is x + delta, where delta [rows, d_model] is what the block before has
// added, or empty. The next norm adds it on its way.
struct Stream {
  View x, delta;  // [rows, d_model]
};

// stream -> what the layer makes of it. `a` keeps what the backward pass needs but for what `r` has.
void layer_forward(Pass& pass, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, Stream& stream);
// dx [rows, d_model], the gradient of the layer's output, becomes that of its input; the parameters' go to their slots.
void layer_backward(Pass& pass, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, const View& dx,
                    const ParameterTable& table, const GradientSlots& g);

// The two blocks of a layer, which layer.cc is made of. y [rows, d_model] of the operand type, the block's input ->
// out [rows, d_model] of the stream type.
void attention_forward(Pass& pass, const LayerWeights& w, LayerActivations& a, const View& y, const View& out);
void mlp_forward(Pass& pass, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& out);
// dout [rows, d_model] of the operand type -> dy [rows, d_model] of the stream type, overwritten
void attention_backward(Pass& pass, const LayerWeights& w, LayerActivations& a, const View& y, const View& dout,
                        const View& dy, const ParameterTable& table, const GradientSlots& g);
void mlp_backward(Pass& pass, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& dout,
                  const View& dy, const ParameterTable& table, const GradientSlots& g);

}  // namespace qkv
