// SPDX-License-Identifier: Apache-2.0
// Hooks into a forward pass: Model::logits(batch, &sink) passes each requested activation to the sink, once, in order
// of computation. Without a sink there is no overhead. Names and shapes are those of TransformerLens hooks (Nanda and
// Bloom, 2022). qkv/inspect.h has ready-made sinks.
#pragma once

#include <cstdint>
#include <string>

#include "qkv/tensor.h"

namespace qkv {

// Sites within a layer, in order, then sites around the layers. Attention's four matrices exist only if one of them is
// requested: attention then takes the reference path, which also computes z. Otherwise attention takes its usual path,
// and logits are bit-identical to those without a sink.
enum class TraceSite : std::uint8_t {
  resid_pre,       // [batch, ctx, d_model]              the layer's input
  ln1_scale,       // [batch, ctx, 1]                    attention's norm: divisor of each token's vector
  ln1_normalized,  // [batch, ctx, d_model]              rmsnorm: before its gain; layernorm: its result
  q,               // [batch, ctx, n_head, head_dim]     before RoPE
  k,               // [batch, ctx, n_kv_head, head_dim]
  v,               // [batch, ctx, n_kv_head, v_head_dim]
  rot_q,           // [batch, ctx, n_head, head_dim]     after RoPE; only models with RoPE
  rot_k,           // [batch, ctx, n_kv_head, head_dim]
  products,        // [batch, n_head, ctx, ctx]          q . k (after RoPE)
  scaled,          // [batch, n_head, ctx, ctx]          products / sqrt(head_dim)
  scores,          // [batch, n_head, ctx, ctx]          scaled, with -inf for masked keys
  pattern,         // [batch, n_head, ctx, ctx]          softmax of scores: each row sums to 1
  z,               // [batch, ctx, n_head, v_head_dim]   pattern . v
  attn_out,        // [batch, ctx, d_model]              attention's addition to the residual stream
  resid_mid,       // [batch, ctx, d_model]
  ln2_scale,       // [batch, ctx, 1]                    the MLP's norm
  ln2_normalized,  // [batch, ctx, d_model]
  mlp_pre,         // [batch, ctx, d_ff]                 before the activation; swiglu: the gate
  mlp_pre_linear,  // [batch, ctx, d_ff]                 swiglu only: multiplied with the gate
  mlp_post,        // [batch, ctx, d_ff]                 after the activation
  mlp_out,         // [batch, ctx, d_model]              the MLP's addition to the residual stream
  resid_post,      // [batch, ctx, d_model]              input of the next layer or the final norm
  // Around the layers; layer is -1.
  embed,                // [batch, ctx, d_model]         token embeddings
  pos_embed,            // [batch, ctx, d_model]         position embeddings; only models with learned positions
  embed_ln_scale,       // [batch, ctx, 1]               the norm after their sum; only models that have it (ANDREA)
  embed_ln_normalized,  // [batch, ctx, d_model]
  ln_final_scale,       // [batch, ctx, 1]               the norm before the head; only models that have it
  ln_final_normalized,  // [batch, ctx, d_model]
};
inline constexpr int kLayerSites = 22, kTraceSites = 28;

// TransformerLens name: "blocks.0.attn.hook_q"; around the layers: "hook_embed", "ln_final.hook_scale". products and
// scaled, which have no hooks there: "blocks.0.attn.products", "blocks.0.attn.scaled".
std::string hook_name(TraceSite site, std::int64_t layer);

// One activation, when it is computed. Valid only during the call.
struct Traced {
  TraceSite site;
  std::int64_t layer;  // -1 around the layers
  ConstView values;    // any strides; f32, f64 or bf16 (compute dtype)
  // The same elements, for sites whose changes take effect in the rest of the pass: q, k, v, rot_q, rot_k, z, attn_out,
  // mlp_pre, mlp_pre_linear, mlp_post and mlp_out. Empty for score matrices, residual stream, norms and embeddings.
  View writable;
};

class TraceSink {
 public:
  virtual ~TraceSink() = default;
  // Called before each activation; the result must not change during a pass.
  virtual bool wants(TraceSite site, std::int64_t layer) const = 0;
  // Called on the thread that called logits(). An exception ends the pass and propagates from logits().
  virtual void visit(const Traced& traced) = 0;
};

}  // namespace qkv
