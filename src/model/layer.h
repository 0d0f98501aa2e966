// SPDX-License-Identifier: Apache-2.0
// One decoder layer, forward and backward; the only definition. Used by training, logits, recomputation, prefill,
// decode and traces; the differences are in Pass.
#pragma once

#include "model/pass.h"

namespace qkv {

// The residual stream between blocks. Its value is x + delta; delta [rows, d_model] is the previous block's output, or
// empty. The next norm adds it.
struct Stream {
  View x, delta;  // [rows, d_model]
};

// Updates stream. Activations for the backward pass go to `a`, those that can be recomputed to `r`.
void layer_forward(Pass& pass, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, Stream& stream);
// dx [rows, d_model], the gradient of the layer's output, is replaced by that of its input; parameter gradients go to
// their slots.
void layer_backward(Pass& pass, const LayerWeights& w, LayerActivations& a, RecomputedActivations& r, const View& dx,
                    const ParameterTable& table, const GradientSlots& g);

// The two blocks of a layer. y [rows, d_model] in the compute dtype, the block's input -> out [rows, d_model] in the
// stream dtype.
void attention_forward(Pass& pass, const LayerWeights& w, LayerActivations& a, const View& y, const View& out);
void mlp_forward(Pass& pass, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& out);
// dout [rows, d_model] in the compute dtype -> dy [rows, d_model] in the stream dtype, overwritten
void attention_backward(Pass& pass, const LayerWeights& w, LayerActivations& a, const View& y, const View& dout,
                        const View& dy, const ParameterTable& table, const GradientSlots& g);
void mlp_backward(Pass& pass, const LayerWeights& w, RecomputedActivations& r, const View& y, const View& dout,
                  const View& dy, const ParameterTable& table, const GradientSlots& g);

}  // namespace qkv
