// SPDX-License-Identifier: Apache-2.0
// A model's weights as used by its passes: bound once when the model is created, prepared again when they change.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/parameters.h"
#include "qkv/stored_parameters.h"

namespace qkv {

// The elements of each parameter in flat order; empty if the model keeps only the prepared matrix.
using ParameterViews = std::vector<ConstView>;

// A norm and the indices of its parameters (-1: none).
struct NormWeights {
  bool present = false;
  NormParameters parameters;
  int gain = -1, bias = -1;
  bool gain_offset = false;
  Tensor shifted_gain;  // 1 + the parameter, with gain_offset
};

struct LayerWeights {
  const LayerConfig* config = nullptr;
  std::int64_t layer = 0;
  NormWeights attention_norm, attention_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  std::unique_ptr<Matrix> qkv;       // [d_model, q + k + v]
  std::unique_ptr<Matrix> wo;        // [n_head * v_head_dim, d_model]
  std::unique_ptr<Matrix> up;        // [d_model, d_ff]; gated: [d_model, 2 * d_ff], gate then up
  std::unique_ptr<Matrix> down;      // [d_ff, d_model]
  Tensor qkv_bias, up_bias;          // as wide as qkv and up; empty if absent
  ConstView output_bias, down_bias;  // [d_model]
  ConstView sinks;                   // [n_head]
  Tensor slopes;                     // [n_head], for ALiBi
  std::size_t rotary = 0;            // index of its table in the model

  std::int64_t q_size() const { return config->n_head * config->head_dim; }
  std::int64_t k_size() const { return config->n_kv_head * config->head_dim; }
  std::int64_t v_size() const { return config->n_kv_head * config->v_head_dim; }
  std::int64_t qkv_size() const { return q_size() + k_size() + v_size(); }
  std::int64_t heads_size() const { return config->n_head * config->v_head_dim; }
  std::int64_t up_size() const { return (config->gated ? 2 : 1) * config->d_ff; }
};

// Columns past the vocabulary are padding: zero columns of the head, with neither probability nor gradient.
inline std::int64_t padded_vocab(const ModelConfig& c) { return (c.vocab_size + 63) / 64 * 64; }

class ModelWeights {
 public:
  ModelWeights() = default;
  ModelWeights(const ModelConfig& config, const ParameterTable& table, const Device& device, DType operand);

  std::vector<LayerWeights> layers;
  NormWeights embedding_norm, final_norm;
  std::unique_ptr<Matrix> head;  // [d_model, padded_vocab]
  TokenTable tokens;
  ConstView positions;  // [ctx_len, d_model] or empty

  // Prepares everything that is not up to date.
  void prepare(const ParameterViews& values, bool with_backward);
  // Call when the parameters have changed.
  void forget() noexcept { ready_ = stored_; }
  // Reads matrices from a file, for forward passes. Block-quantised ones stay in blocks if `keep_blocks`; others are
  // rounded to the compute dtype. `values` has the other parameters. Throws qkv::FileError.
  void prepare_stored(const ParameterViews& values, const StoredParameters& source, bool keep_blocks);
  // Bytes of matrices read by a forward pass of one row.
  std::size_t bytes() const;
  const std::vector<const Matrix*>& matrices() const noexcept { return matrices_; }

 private:
  void bind(NormWeights& norm, const ParameterViews& values);
  void bind_vectors(const ParameterViews& values);

  const ModelConfig* config_ = nullptr;
  const ParameterTable* table_ = nullptr;
  const Device* device_ = nullptr;
  DType operand_ = DType::f32;
  std::vector<const Matrix*> matrices_;
  Tensor stored_tokens_;                          // [vocab_size, d_model], of a model created from a file
  std::unique_ptr<Matrix> stored_token_columns_;  // the same, in blocks
  bool ready_ = false, backward_ = false, stored_ = false;
};

}  // namespace qkv
