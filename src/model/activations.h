// SPDX-License-Identifier: Apache-2.0
// What a forward pass leaves for the backward pass, and memory to work in. "stream" and "operand" are types (device.h);
// rows = batch * ctx.
#pragma once

#include <vector>

#include "model/buffer.h"

namespace qkv {

// Around the function of a block, attention or the MLP.
struct BlockActivations {
  Buffer norm;        // operand [rows, d_model]   the norm of the stream
  Buffer stats;       // stream [rows, 2]
  Buffer out;         // stream [rows, d_model]    before the post norm; not without one
  Buffer post_stats;  // stream [rows, 2]
};

// What a layer can compute again from its input and from what the heads read.
struct RecomputedActivations {
  BlockActivations attention, mlp;
  Buffer middle;      // stream [rows, d_model]    x plus attention; sequential only
  Buffer up;          // operand [rows, d_ff], gated [rows, 2 * d_ff]: gate, then up
  Buffer activation;  // operand [rows, d_ff]      not for relu without a gate, which replaces up
};

// Of one layer.
struct LayerActivations {
  Buffer x;        // stream [rows, d_model]                the layer's input
  Buffer qkv;      // operand [rows, q + k + v]             q, k and v side by side
  Buffer qk;       // operand [rows, q + k]                 normalized; not without QK-norm
  Buffer q_stats;  // stream [rows, groups]
  Buffer k_stats;  // stream [rows, groups]
  Buffer heads;    // operand [rows, n_head * v_head_dim]   what the heads have read
  Buffer lse;      // stream [batch, n_head, ctx]
  RecomputedActivations recomputed;
};

struct Workspace {
  std::vector<LayerActivations> layers;  // [n_layer]; only one where nothing is kept
  RecomputedActivations recomputed;      // of the layer at hand, where activations are recomputed
  Buffer x;                              // stream [rows, d_model]    the last layer's output
  Buffer embedding;                      // stream [rows, d_model]    before the embedding's norm
  Buffer embedding_stats;                // stream [rows, 2]
  Buffer final_norm;                     // operand [rows, d_model]   what the head reads
  Buffer final_stats;                    // stream [rows, 2]
  Buffer delta, mlp_delta;               // stream [rows, d_model]    what a block adds to the stream
  Buffer logits;                         // stream [rows of a chunk, padded vocabulary]
  Buffer capped;                         // stream, as logits         after the softcap, for its gradient
  Buffer last_logits;                    // stream [sequences, vocab_size]
  Buffer losses;                         // f64 [rows of a chunk]
  // Gradients.
  Buffer dx;           // stream [rows, d_model]    of the stream between layers
  Buffer dy;           // operand [rows, d_model]   the same as an operand of products
  Buffer dblock;       // stream [rows, d_model]    of a block's output, where it has a post norm or a scale
  Buffer dnorm, dmlp;  // stream [rows, d_model]    of a block's input
  Buffer dqkv;         // as qkv
  Buffer dheads;       // operand [rows, n_head * v_head_dim]
  Buffer dup;          // as up
  Buffer dactivation;  // operand [rows, d_ff]      gated only
  Buffer dlogits;      // operand, as logits
};

}  // namespace qkv
