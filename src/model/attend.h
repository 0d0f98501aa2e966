// SPDX-License-Identifier: Apache-2.0
// What rows attend to: their own batch (training, logits, traces) or KV caches (prefill, decode).
#pragma once

#include <span>

#include "model/pass.h"
#include "qkv/model_state.h"

namespace qkv {

// q, k and v of a token's heads, or their gradients: [rows, heads * d] each, row strides allowed.
struct Heads {
  View q, k, v;
};

// Sequences of the batch attend to themselves, starting at position 0.
class BatchAttention : public Attention {
 public:
  void forward(Pass& pass, const LayerWeights& w, const View& q, const View& k, const View& v,
               LayerActivations& a) override;
};
// Gradients of q, k and v before rotation, and of the sinks, from the gradient of the heads.
void attend_backward(Pass& pass, const LayerWeights& w, const Heads& x, const LayerActivations& a, const View& dheads,
                     const Heads& dx, const SlotPointers& dsinks, const GradientSlots& g);

// The rows of each part attend to its state's caches and are appended to them.
class CachedAttention : public Attention {
 public:
  explicit CachedAttention(std::span<const DecodePart> parts) : parts_(parts) {}
  void forward(Pass& pass, const LayerWeights& w, const View& q, const View& k, const View& v,
               LayerActivations& a) override;

 private:
  std::span<const DecodePart> parts_;
};

}  // namespace qkv
