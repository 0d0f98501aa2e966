// SPDX-License-Identifier: Apache-2.0
// Looking into a forward pass while it runs: Model::logits(batch, &sink) hands every activation that the sink wants to
// it, once, in the order in which they are made. Without a sink nothing is done. Names and shapes are those of
// TransformerLens' hooks (Nanda and Bloom, 2022). qkv/inspect.h has sinks ready for use.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/tensor.h"

namespace qkv {

// What a layer shows, in order, and then what the model shows around its layers. Attention's four matrices exist only
// if one of them is wanted: the pass then takes the reference path of attention, whose scores and pattern they are and
// whose sum of values is z. Otherwise attention takes the path it always takes, and logits have the bits they have
// without a sink.
enum class TraceSite : std::uint8_t {
  resid_pre,       // [batch, ctx, d_model]              the layer's input
  ln1_scale,       // [batch, ctx, 1]                    attention's norm: what each token's vector is divided by
  ln1_normalized,  // [batch, ctx, d_model]              rmsnorm: before its gain; layernorm: its result
  q,               // [batch, ctx, n_head, head_dim]     before rotary positions
  k,               // [batch, ctx, n_kv_head, head_dim]
  v,               // [batch, ctx, n_kv_head, v_head_dim]
  rot_q,           // [batch, ctx, n_head, head_dim]     after rotary positions; only models that have them
  rot_k,           // [batch, ctx, n_kv_head, head_dim]
  products,        // [batch, n_head, ctx, ctx]          q . k (after rotary positions)
  scaled,          // [batch, n_head, ctx, ctx]          products / sqrt(head_dim)
  scores,          // [batch, n_head, ctx, ctx]          scaled, and -inf where reading is not allowed
  pattern,         // [batch, n_head, ctx, ctx]          softmax of scores: each row sums to 1
  z,               // [batch, ctx, n_head, v_head_dim]   pattern . v
  attn_out,        // [batch, ctx, d_model]              what attention adds to the stream
  resid_mid,       // [batch, ctx, d_model]
  ln2_scale,       // [batch, ctx, 1]                    the MLP's norm
  ln2_normalized,  // [batch, ctx, d_model]
  mlp_pre,         // [batch, ctx, d_ff]                 before the activation; swiglu: the gate
  mlp_pre_linear,  // [batch, ctx, d_ff]                 swiglu only: what the gate is multiplied with
  mlp_post,        // [batch, ctx, d_ff]                 after the activation
  mlp_out,         // [batch, ctx, d_model]              what the MLP adds to the stream
  resid_post,      // [batch, ctx, d_model]              the next layer's input, or what the final norm reads
  // Around the layers; their layer is -1.
  embed,                // [batch, ctx, d_model]         the tokens' vectors
  pos_embed,            // [batch, ctx, d_model]         the positions' vectors; only models that learn them
  embed_ln_scale,       // [batch, ctx, 1]               a norm after their sum; only models that have it (ANDREA)
  embed_ln_normalized,  // [batch, ctx, d_model]
  ln_final_scale,       // [batch, ctx, 1]               the norm before the head; only models that have it
  ln_final_normalized,  // [batch, ctx, d_model]
};
inline constexpr int kLayerSites = 22, kTraceSites = 28;

// "blocks.0.attn.hook_q", as TransformerLens names it; products and scaled, which it has no hooks for:
// "blocks.0.attn.products", "blocks.0.attn.scaled". Those around the layers: "hook_embed", "ln_final.hook_scale".
std::string hook_name(TraceSite site, std::int64_t layer);

// One activation at the moment it is made. Valid during the call only.
struct Traced {
  TraceSite site;
  std::int64_t layer;  // -1 around the layers
  ConstView values;    // of any strides; f32, f64 or (operands of products) bf16
  // The same elements where the pass goes on with what is written here: q, k, v, rot_q, rot_k, z, attn_out, mlp_pre,
  // mlp_pre_linear, mlp_post and mlp_out. Empty for the matrices of scores, the stream, norms and embeddings.
  View writable;
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Asked before each activation; the answer must not change during a pass.
  virtual bool wants(TraceSite site, std::int64_t layer) const = 0;
  // Called from the thread that called logits(). What it throws ends the pass and comes out of logits().
  virtual void visit(const Traced& traced) = 0;
};

}  // namespace qkv
