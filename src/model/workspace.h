// SPDX-License-Identifier: Apache-2.0
// Memory that a model keeps between steps: what the forward pass leaves for the backward pass, and room to work in.
// T is the type of the stream, of norms, softmax and loss; S that of what goes into and comes out of matrix products.
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

// What a layer can make again from its input, its heads and one product; rows = batch * ctx.
template <class T, class S>
struct RemadeActivations {
  Room<S> attention_norm;   // [rows, d_model]
  Room<T> attention_stats;  // [rows, 2]
  Room<T> middle;           // [rows, d_model]                   x plus attention
  Room<S> mlp_norm;         // [rows, d_model]
  Room<T> mlp_stats;        // [rows, 2]
  Room<S> up;               // [rows, d_ff] or [rows, 2, d_ff]   swiglu: gate, then up; relu: the activation itself
  Room<S> activation;       // [rows, d_ff]                      not for relu
};

// Of one layer.
template <class T, class S>
struct LayerActivations {
  Room<T> x;      // [rows, d_model]                             the layer's input
  Room<S> qkv;    // [rows, q_size + k_size + v_size]            q, k and v side by side
  Room<S> heads;  // [rows, n_head, v_head_dim]                  what the heads have read
  Room<T> lse;    // [batch, n_head, ctx]
  RemadeActivations<T, S> remade;
};

template <class T, class S>
struct Workspace {
  std::vector<LayerActivations<T, S>> layers;  // [n_layer + 1], of the last only x; one alone where nothing is kept
  RemadeActivations<T, S> remade;              // of the layer at hand, where activations are recomputed
  Room<T> embedding;                           // [rows, d_model]   before the embedding's norm
  Room<T> embedding_stats;                     // [rows, 2]
  Room<S> final_norm;                          // [rows, d_model]   what the head reads
  Room<T> final_stats;                         // [rows, 2]
  Room<T> delta;                               // [rows, d_model]   what a block adds to the stream
  Room<T> logits;                              // [rows of a chunk, padded vocabulary]
  Room<T> read_logits;                         // [sequences, vocab_size]
  Room<double> losses;                         // [rows of a chunk]
  // gradients
  Room<T> dx;       // [rows, d_model]   of the stream between layers
  Room<S> dy;       // [rows, d_model]   the same as an operand of products
  Room<T> dnorm;    // [rows, d_model]   of a norm's output
  Room<S> dqkv;     // as qkv
  Room<S> dheads;   // [rows, n_head, v_head_dim]
  Room<S> dup;      // as up
  Room<S> dact;     // [rows, d_ff]      of the activation; swiglu only
  Room<S> dlogits;  // as logits
};

}  // namespace qkv
