// SPDX-License-Identifier: Apache-2.0
// The decoder as a computation: parameters in, logits, losses and gradients out. T is float or double.
//
//   x = token_embedding[token] (+ position_embedding[t])        x = norm(x) if embedding_norm
//   each layer:  x += attention(norm(x)),  x += mlp(norm(x))
//   logits = norm(x) head if final_norm, else x head            head = token_embedding^T if tied
#pragma once

#include <cstdint>
#include <span>

#include "model/parameters.h"
#include "model/rotary.h"
#include "model/sequences.h"
#include "model/workspace.h"
#include "qkv/model.h"

namespace qkv {

template <class T>
class Network {
 public:
  explicit Network(const ModelConfig& config);  // resolved

  // logits [rows, vocab_size]
  void logits(const ModelParameters<const T*>& p, const Sequences& s, std::span<const std::int32_t> tokens, T* logits);

  // The loss; with gradients, scale * d(loss.sum) is added to them. batch has been checked.
  Loss loss(const ModelParameters<const T*>& p, const Batch& batch, T scale, const ModelParameters<T*>* gradients);

  // Reads the tokens after those in `caches`, one a layer, and writes the last one's logits [vocab_size].
  void read(const ModelParameters<const T*>& p, std::span<const std::int32_t> tokens, std::span<KvCache> caches,
            T* logits);

 private:
  struct Pass;  // the sequences at hand and what to do with them

  T* forward(const Pass& pass);  // the head's input [rows, d_model]
  void layer_forward(const Pass& pass, std::size_t i);
  void head_forward(const ModelParameters<const T*>& p, std::int64_t rows, const T* x, T* logits);
  Loss head_loss(const Pass& pass, const T* x, const std::int32_t* targets, T scale, T* dx,
                 const ModelParameters<T*>* g);
  void backward(const Pass& pass, const ModelParameters<T*>& g);
  void layer_backward(const Pass& pass, std::size_t i, const ModelParameters<T*>& g);
  LayerActivations<T>& activations(const Pass& pass, std::size_t i);

  ModelConfig c_;
  RotaryTable<T> table_;
  Workspace<T> w_;
};

extern template class Network<float>;
extern template class Network<double>;

}  // namespace qkv
