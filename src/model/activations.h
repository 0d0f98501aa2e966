// SPDX-License-Identifier: Apache-2.0
// Activations that a forward pass keeps for the backward pass, and work buffers. "stream" and "operand" are dtypes
// (device.h); rows = batch * ctx.
#pragma once

#include <vector>

#include "model/buffer.h"

namespace qkv {

// Around a block's function (attention or MLP).
struct BlockActivations {
  Buffer norm;        // operand [rows, d_model]   normalized stream
  Buffer stats;       // stream [rows, 2]
  Buffer out;         // stream [rows, d_model]    before the post norm; unused without one
  Buffer post_stats;  // stream [rows, 2]
};

// Recomputable from the layer's input and the output of the heads.
struct RecomputedActivations {
  BlockActivations attention, mlp;
  Buffer middle;      // stream [rows, d_model]    x plus attention; sequential only
  Buffer up;          // operand [rows, d_ff]; gated: [rows, 2 * d_ff], gate then up
  Buffer activation;  // operand [rows, d_ff]      unused for ungated relu, which overwrites up
};

// One layer.
struct LayerActivations {
  Buffer x;        // stream [rows, d_model]                the layer's input
  Buffer qkv;      // operand [rows, q + k + v]             q, k and v concatenated
  Buffer qk;       // operand [rows, q + k]                 normalized; unused without QK-norm
  Buffer q_stats;  // stream [rows, groups]
  Buffer k_stats;  // stream [rows, groups]
  Buffer heads;    // operand [rows, n_head * v_head_dim]   output of the heads
  Buffer lse;      // stream [batch, n_head, ctx]
  RecomputedActivations recomputed;
};

struct Workspace {
  std::vector<LayerActivations> layers;  // [n_layer]; one if nothing is kept
  RecomputedActivations recomputed;      // of the current layer, if activations are recomputed
  Buffer x;                              // stream [rows, d_model]    the last layer's output
  Buffer embedding;                      // stream [rows, d_model]    before the embedding's norm
  Buffer embedding_stats;                // stream [rows, 2]
  Buffer final_norm;                     // operand [rows, d_model]   input of the LM head
  Buffer final_stats;                    // stream [rows, 2]
  Buffer delta, mlp_delta;               // stream [rows, d_model]    output of a block, added to the stream
  Buffer logits;                         // stream [rows of a chunk, padded vocabulary]
  Buffer capped;                         // stream, like logits        after the softcap, for its gradient
  Buffer last_logits;                    // stream [sequences, vocab_size]
  Buffer losses;                         // f64 [rows of a chunk]
  // Gradients.
  Buffer dx;           // stream [rows, d_model]    of the residual stream between layers
  Buffer dy;           // operand [rows, d_model]   dx in the compute dtype
  Buffer dblock;       // stream [rows, d_model]    of a block's output, if it has a post norm or a scale
  Buffer dnorm, dmlp;  // stream [rows, d_model]    of a block's input
  Buffer dqkv;         // like qkv
  Buffer dheads;       // operand [rows, n_head * v_head_dim]
  Buffer dup;          // like up
  Buffer dactivation;  // operand [rows, d_ff]      gated only
  Buffer dlogits;      // operand, like logits
};

}  // namespace qkv
