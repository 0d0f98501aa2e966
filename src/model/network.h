// SPDX-License-Identifier: Apache-2.0
// The decoder as a computation: parameters in, logits, losses and gradients out.
//
//   x = token_embedding[token] (+ position_embedding[t])        x = norm(x) if embedding_norm
//   each layer:  x += attention(norm(x)),  x += mlp(norm(x))
//   logits = norm(x) head if final_norm, else x head            head = token_embedding^T if tied
//
// T is the type of parameters, stream, norms, softmax, loss and gradients; S that of the operands of products: <float,
// float>, <float, bf16>, or <double, double>, which is written out as the equations are.
#pragma once

#include <cstdint>
#include <span>

#include "model/gradient_slots.h"
#include "model/network_parameters.h"
#include "model/prepared.h"
#include "model/rotary.h"
#include "model/sequences.h"
#include "model/workspace.h"
#include "qkv/model.h"
#include "qkv/trace.h"

namespace qkv {

// Where a layer drops.
enum class DropoutKind : std::uint8_t { attention_probs, attention_residual, mlp_residual };

template <class T, class S>
class Network {
 public:
  explicit Network(const ModelConfig& config);  // resolved

  // The parameters have changed or are about to.
  void forget_parameters() noexcept { prepared_.ready = prepared_.stored; }
  // Matrices straight from a file, for forward passes alone; those of the parameters given later are not looked at. T
  // is float.
  void keep_stored(const StoredParameters& source, bool keep_blocks) {
    prepared_.prepare_stored(c_, source, keep_blocks);
  }
  // Bytes that a forward pass of one row reads of the matrices.
  std::size_t weight_bytes() const noexcept;
  // Keep of each layer only its input, q, k, v and what the heads read, and make the rest again in the backward pass.
  void set_recompute(bool recompute) noexcept { recompute_ = recompute; }
  void set_dropout(const ModelDropout& dropout) noexcept { dropout_ = dropout; }
  void set_profile(ModelProfile* profile) noexcept { profile_ = profile; }

  // logits [rows, vocab_size]; sink may be null
  void logits(const ModelParameters<const T*>& p, const Sequences& s, std::span<const std::int32_t> tokens, T* logits,
              TraceSink* sink = nullptr);
  // What the head makes of a stream: stream [rows, d_model] -> logits [rows, vocab_size]
  void unembed(const ModelParameters<const T*>& p, std::int64_t rows, const T* stream, T* logits);

  // The loss; with gradients, scale * d(loss.sum) is added to their sum. batch has been checked.
  Loss loss(const ModelParameters<const T*>& p, const Batch& batch, T scale, GradientSum::Impl* gradients);

  // Reads each part's tokens after those that its state holds, and writes the last one's logits.
  void read(const ModelParameters<const T*>& p, std::span<const ReadPart> parts);

 private:
  struct Pass;  // the sequences at hand and what to do with them

  void embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
             const ModelParameters<const T*>& p, T* x);
  const S* forward(const Pass& pass);  // the head's input [rows, d_model]
  void trace_embedding(const Pass& pass, T* sum);
  void layer_forward(const Pass& pass, std::size_t i);
  void end_layer(const Pass& pass, std::size_t i, const T* middle, const T* delta);
  void head_logits(std::int64_t rows, const S* x, T* logits);  // [rows, vocab_size]
  // Adds the loss of a group of sequences to total.
  void head_loss(const Pass& pass, const S* x, const std::int32_t* targets, T scale, T* dx, const GradientSlots<T>* g,
                 Loss& total);
  void head_gradient(std::int64_t rows, const S* x, const S* dlogits, bool fresh, T* dhead);
  void read_rows(const ModelParameters<const T*>& p, std::span<const ReadPart> parts);
  void read_attention(const ModelParameters<const T*>& p, std::size_t layer, std::span<const ReadPart> parts,
                      const S* y, T* delta);
  void read_logits(std::span<const ReadPart> parts, const T* x, const S* y);
  void backward(const Pass& pass, const GradientSlots<T>& g);
  void layer_backward(const Pass& pass, std::size_t i, const GradientSlots<T>& g);
  void remake(const Pass& pass, std::size_t i);
  void drop(const Pass& pass, std::size_t layer, DropoutKind kind, T* delta);
  const S* dropped_operand(const Pass& pass, std::size_t layer, DropoutKind kind);
  LayerActivations<T, S>& activations(const Pass& pass, std::size_t i);
  RemadeActivations<T, S>& remade(const Pass& pass, std::size_t i);

  ModelConfig c_;
  RotaryTable<T> table_;
  PreparedModel<T, S> prepared_;
  Workspace<T, S> w_;
  bool recompute_ = false;
  ModelProfile* profile_ = nullptr;
  ModelDropout dropout_;
};

extern template class Network<float, float>;
extern template class Network<float, bf16>;
extern template class Network<double, double>;

}  // namespace qkv
