// SPDX-License-Identifier: Apache-2.0
// A model's matrices made ready for products: rounded to the operands' type and packed, W_Q, W_K and W_V as one, gate
// and up as one, the vocabulary padded to a friendly size. Made anew when the parameters have changed.
#pragma once

#include <cstdint>
#include <vector>

#include "linalg/weights.h"
#include "model/network_parameters.h"
#include "qkv/stored_parameters.h"

namespace qkv {

template <class T>
struct PreparedLayer {
  Weights qkv;                       // [d_model, q_size + k_size + v_size]
  Weights wo;                        // [n_head * v_head_dim, d_model]
  Weights up;                        // [d_model, d_ff], or [d_model, 2 * d_ff] for swiglu: gate, then up
  Weights down;                      // [d_ff, d_model]
  std::vector<T> qkv_bias, up_bias;  // as wide as qkv and up; empty if there are none
};

// The rows of the token embedding of a model that keeps its parameters as they are stored.
struct EmbeddingRows {
  Tensor table;    // [vocab_size, d_model] of f32 or bf16; or, if empty,
  Weights blocks;  // [d_model, vocab_size], a column a token; or, if not given, the columns of the tied head

  void row(std::int32_t token, const Weights& head, float* to) const;  // to [d_model]
};

template <class T, class S>
struct PreparedModel {
  std::vector<PreparedLayer<T>> layers;
  Weights head;  // [d_model, padded_vocab]
  EmbeddingRows embedding;
  bool ready = false, backward = false;
  bool stored = false;  // made by prepare_stored: stays as it is

  // Whether products of so many rows run on kernels of our own, all of them.
  bool has_few_rows(std::int64_t rows) const;
  // Does nothing if ready for what is asked.
  void prepare(const ModelConfig& c, const ModelParameters<const T*>& p, bool with_backward);
  // From a file's parameters, for forward passes alone: matrices stored in blocks stay so if `keep_blocks`, and all
  // others become operands. T is float. Throws qkv::FileError.
  void prepare_stored(const ModelConfig& c, const StoredParameters& source, bool keep_blocks);
};

// Lanes past the vocabulary hold no token: zero columns of the head, without probability or gradient.
inline std::int64_t padded_vocab(const ModelConfig& c) { return (c.vocab_size + 63) / 64 * 64; }

extern template struct PreparedModel<float, float>;
extern template struct PreparedModel<float, bf16>;
extern template struct PreparedModel<double, double>;

}  // namespace qkv
