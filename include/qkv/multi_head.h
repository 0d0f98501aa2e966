// SPDX-License-Identifier: Apache-2.0
// A complete multi-head attention layer: X -> W_Q, W_K, W_V -> heads -> attention -> concatenated heads -> W_O. Vaswani
// et al. (2017), section 3.2.2; grouped queries: Ainslie et al. (2023).
//
//   x    [batch, ctx, d_model]
//   q    = x . w_q + b_q    [batch, ctx, n_head * head_dim]       viewed as [batch, n_head, ctx, head_dim], not copied
//   k    = x . w_k + b_k    [batch, ctx, n_kv_head * head_dim]
//   v    = x . w_v + b_v    [batch, ctx, n_kv_head * v_head_dim]
//   read = attention(q, k, v)   [batch, ctx, n_head * v_head_dim]    the heads concatenated
//   out  = read . w_o + b_o     [batch, ctx, d_model]
//
// n_head * head_dim need not be d_model. f32 or f64 throughout. Misuse throws std::invalid_argument. The functions are
// thread-safe.
#pragma once

#include <cstdint>

#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv {

struct MultiHeadConfig {
  std::int64_t d_model = 0;
  std::int64_t n_head = 0;
  std::int64_t n_kv_head = 0;   // 0: n_head
  std::int64_t head_dim = 0;    // d_k; 0: d_model / n_head, which must divide evenly
  std::int64_t v_head_dim = 0;  // d_v; 0: head_dim
  bool bias = false;

  // The same with every derivable size filled in; throws std::invalid_argument if sizes do not match.
  MultiHeadConfig resolved() const;
};

// The layer's parameters, or their gradients. Matrices are [in, out]. Without biases, the b_ tensors are empty.
struct MultiHeadParameters {
  Tensor w_q;  // [d_model, n_head * head_dim]
  Tensor w_k;  // [d_model, n_kv_head * head_dim]
  Tensor w_v;  // [d_model, n_kv_head * v_head_dim]
  Tensor w_o;  // [n_head * v_head_dim, d_model]
  Tensor b_q;  // [n_head * head_dim]
  Tensor b_k;  // [n_kv_head * head_dim]
  Tensor b_v;  // [n_kv_head * v_head_dim]
  Tensor b_o;  // [d_model]
};

// Zero parameters, f32 or f64.
MultiHeadParameters make_multi_head(const MultiHeadConfig& config, DType dtype = DType::f32);

// Activations that the forward pass stores for the backward pass.
struct MultiHeadActivations {
  Tensor q;     // [batch, ctx, n_head * head_dim]
  Tensor k;     // [batch, ctx, n_kv_head * head_dim]
  Tensor v;     // [batch, ctx, n_kv_head * v_head_dim]
  Tensor read;  // [batch, ctx, n_head * v_head_dim]
  Tensor lse;   // [batch, n_head, ctx]
};

// x: [batch, ctx, d_model], any strides, the parameters' type. `activations` may be null. Returns out.
Tensor multi_head(const MultiHeadConfig& config, const MultiHeadParameters& parameters, const ConstView& x,
                  const AttentionOptions& options = {}, MultiHeadActivations* activations = nullptr);

struct MultiHeadGradients {
  Tensor dx;                       // [batch, ctx, d_model]
  MultiHeadParameters parameters;  // shaped like the parameters
};

// dout: [batch, ctx, d_model], the gradient of the loss with respect to out. The other arguments are those of the
// forward pass. attention_gradients receives dmask and dsinks, if wanted; its dq, dk and dv must be empty.
MultiHeadGradients multi_head_backward(const MultiHeadConfig& config, const MultiHeadParameters& parameters,
                                       const ConstView& x, const MultiHeadActivations& activations,
                                       const ConstView& dout, const AttentionOptions& options = {},
                                       const AttentionGradients& attention_gradients = {});

}  // namespace qkv
