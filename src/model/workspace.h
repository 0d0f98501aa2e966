// SPDX-License-Identifier: Apache-2.0
// Memory that a model keeps between steps: what the forward pass leaves for the backward pass, and room to work in.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

// Elements that grow to the largest size asked for and are then used again. Contents are not kept when it grows.
template <class T>
class Room {
 public:
  T* take(std::int64_t size) {
    if (size > tensor_.size()) tensor_ = Tensor();
    if (!tensor_.raw()) tensor_ = Tensor(Dims{size}, dtype_of<T>);
    return get();
  }
  T* get() noexcept { return static_cast<T*>(tensor_.raw()); }

 private:
  Tensor tensor_;
};

// Of one layer; rows = batch * ctx.
template <class T>
struct LayerActivations {
  Room<T> x;                // [rows, d_model]                   the layer's input
  Room<T> attention_norm;   // [rows, d_model]
  Room<T> attention_stats;  // [rows, 2]
  Room<T> q, k, v;          // [rows, n_head, head_dim], [rows, n_kv_head, head_dim], [rows, n_kv_head, v_head_dim]
  Room<T> heads;            // [rows, n_head, v_head_dim]        what the heads have read
  Room<T> lse;              // [batch, n_head, ctx]
  Room<T> middle;           // [rows, d_model]                   x plus attention
  Room<T> mlp_norm;         // [rows, d_model]
  Room<T> mlp_stats;        // [rows, 2]
  Room<T> gate, up;         // [rows, d_ff]                      gate: swiglu only; up: the activation itself for relu
  Room<T> activation;       // [rows, d_ff]                      not for relu
};

template <class T>
struct Workspace {
  std::vector<LayerActivations<T>> layers;  // [n_layer + 1], of the last only x; one alone where nothing is kept
  Room<T> embedding;                        // [rows, d_model]   before the embedding's norm
  Room<T> embedding_stats;                  // [rows, 2]
  Room<T> final_norm;                       // [rows, d_model]
  Room<T> final_stats;                      // [rows, 2]
  Room<T> logits;                           // [rows of a chunk, vocab_size]
  Room<double> losses;                      // [rows of a chunk]
  // gradients
  Room<T> dx;          // [rows, d_model]   of the stream between layers
  Room<T> dnorm;       // [rows, d_model]   of a norm's output
  Room<T> dq, dk, dv;  // as q, k, v
  Room<T> dheads;      // [rows, n_head, v_head_dim]
  Room<T> dgate, dup;  // [rows, d_ff]
};

}  // namespace qkv
