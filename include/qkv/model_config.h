// SPDX-License-Identifier: Apache-2.0
// Configuration of a decoder-only language model: sizes, and norms, attention and MLP of each layer. Equations with
// every option: docs/layer.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

enum class Norm : std::uint8_t { rmsnorm, layernorm };

// Where the norms of a layer are. x is the residual stream, f attention or the MLP.
enum class NormPlace : std::uint8_t {
  before,  // x + f(norm(x))            GPT-2, LLaMA, ANDREA
  after,   // x + norm(f(x))            OLMo 2
  both,    // x + post_norm(f(norm(x))) Gemma 2 and 3
};

// RMSNorm of queries and keys, before RoPE.
enum class QkNorm : std::uint8_t {
  none,
  per_head,   // over each head's head_dim elements, one gain [head_dim] for all heads: Qwen3, Gemma 3
  all_heads,  // over all heads of a token together, gain [n_head * head_dim] and [n_kv_head * head_dim]: OLMo 2
};

// How attention and the MLP are added to the residual stream.
enum class Residual : std::uint8_t {
  sequential,            // x += attention(norm(x));  x += mlp(norm(x))
  parallel,              // x += attention(norm(x)) + mlp(mlp_norm(x))        GPT-NeoX
  parallel_shared_norm,  // x += attention(y) + mlp(y), y = norm(x)           Phi, Falcon 7B
};

// gelu: tanh approximation; gelu_erf: exact, with erf; silu: u * sigmoid(u); relu2: relu squared.
enum class Activation : std::uint8_t { relu, relu2, gelu, silu, gelu_erf };

// Position encoding. learned: a table added to the token embedding; rotary: RoPE, which rotates queries and keys in
// pairs (i, i + rotated / 2); none: only the causal mask.
enum class Positions : std::uint8_t { learned, rotary, none };

// RoPE scaling, for contexts longer than the original training context. The default changes nothing.
struct RopeScaling {
  double factor = 1;            // divides frequencies: all of them, or only the low ones (LLaMA 3):
  double low_freq_factor = 0;   // if both > 0: wavelengths above original_ctx_len / low_freq_factor are scaled, those
  double high_freq_factor = 0;  // below original_ctx_len / high_freq_factor are not, in between interpolated
  std::int64_t original_ctx_len = 0;
  std::vector<double> frequency_factors;  // [rotated / 2] or empty: additional divisor per frequency
  double attention_factor = 1;            // factor of cosines and sines (YaRN)
  bool operator==(const RopeScaling&) const = default;
};

// One layer. 0 means "derive it" for sizes that can be derived.
struct LayerConfig {
  // Attention.
  std::int64_t n_head = 6;
  std::int64_t n_kv_head = 0;     // 0: n_head
  std::int64_t head_dim = 0;      // d_k; 0: d_model / n_head, which must divide evenly
  std::int64_t v_head_dim = 0;    // d_v; 0: head_dim
  std::int64_t window_left = -1;  // preceding tokens visible to a token; -1: all (AttentionOptions::window_left)
  double attention_scale = 0;     // of q . k; 0: 1 / sqrt(head_dim)
  double softcap = 0;             // of scores: softcap * tanh(score / softcap); 0: none
  bool alibi = false;             // scores - slope * distance (Press et al., 2022); slopes: alibi_slopes()
  bool sinks = false;             // one learned logit per head in the softmax's denominator
  QkNorm qk_norm = QkNorm::none;
  bool qkv_bias = false;     // biases of W_Q, W_K and W_V
  bool output_bias = false;  // bias of W_O
  Positions positions = Positions::learned;
  double rope_theta = 10000;
  double rope_share = 1;  // RoPE applies to the first head_dim * rope_share elements of a head
  RopeScaling rope_scaling;
  // MLP.
  std::int64_t d_ff = 0;  // 0: 4 * d_model
  Activation activation = Activation::relu;
  bool gated = false;  // activation(x W_gate) * (x W_up) instead of activation(x W_up)
  bool mlp_bias = false;
  // Norms and the residual stream.
  Norm norm = Norm::rmsnorm;
  NormPlace norm_place = NormPlace::before;
  bool norm_gain = false;
  bool norm_gain_offset = false;  // the gain is 1 + the parameter: Gemma
  bool norm_bias = false;         // layernorm only
  double norm_eps = 1e-5;
  Residual residual = Residual::sequential;
  double residual_scale = 1;  // factor of attention and MLP outputs: Granite
  bool operator==(const LayerConfig&) const = default;
};

// Complete configuration of a decoder-only model. Members that a file or program leaves out have the defaults below,
// which differ from those of `qkv train` (preset()). The members inherited from LayerConfig describe every layer; a
// model whose layers differ lists all of them in `layers`. The inherited members also determine the kind of the norms
// around the layers, and whether there are learned position embeddings (`positions`).
struct ModelConfig : LayerConfig {
  std::int64_t n_layer = 6;
  std::int64_t d_model = 192;
  std::int64_t vocab_size = 256;
  std::int64_t ctx_len = 256;
  bool embedding_norm = true;       // norm after the embedding sum (ANDREA)
  bool final_norm = false;          // norm before the head
  bool tied_head = false;           // the head is the token embedding, transposed
  double embedding_scale = 1;       // factor of token embeddings: Gemma, Granite
  double logit_scale = 1;           // factor of logits: Granite
  double logit_softcap = 0;         // then softcap * tanh(logit / softcap); 0: none: Gemma 2
  std::vector<LayerConfig> layers;  // [n_layer], or empty: all use the inherited members

  const LayerConfig& layer(std::int64_t i) const {
    return layers.empty() ? *this : layers[static_cast<std::size_t>(i)];
  }

  // A copy with every derivable size filled in; throws std::invalid_argument if the configuration is inconsistent.
  ModelConfig resolved() const;
  bool operator==(const ModelConfig&) const = default;
};

// A named configuration: family and approximate parameter count. "llama-4m" is the default of `qkv train`; llama-135m
// has the shape of SmolLM2-135M, gpt2 that of GPT-2 124M. Throws std::invalid_argument, listing the names.
ModelConfig preset(std::string_view name);
std::vector<std::string> preset_names();
// d_ff of the LLaMA presets, 8/3 d_model rounded to a multiple of 32: the gated MLP then has about as many parameters
// as a non-gated one with d_ff = 4 d_model.
std::int64_t gated_d_ff(std::int64_t d_model);

// Elements per head that RoPE rotates: head_dim * rope_share, even; 0 without RoPE.
std::int64_t rotated_dims(const LayerConfig& layer);
// The angle of pair i in radians per position: rope_theta^(-2 i / rotated), scaled. [rotated / 2]. Scaling formulas:
// transformers' `rope_type` linear and llama3. `layer` must be resolved.
std::vector<double> rotary_frequencies(const LayerConfig& layer);
// ALiBi slope per head, [n_head]: 2^(-8 (h + 1) / n_head) for a power of two; otherwise those of the next lower power
// of two, then every other slope of twice that many heads (Press et al., 2022, the authors' code).
std::vector<float> alibi_slopes(std::int64_t n_head);

// Role of a parameter. Matrices are [in, out] (y = x W + b). One of each per layer unless noted "of the model".
enum class ParameterRole : std::uint8_t {
  token_embedding,     // [vocab_size, d_model], of the model
  position_embedding,  // [ctx_len, d_model], of the model
  embedding_norm_gain,
  embedding_norm_bias,  // [d_model], of the model
  attention_norm_gain,
  attention_norm_bias,  // [d_model]
  wq,
  bq,  // [d_model, n_head * head_dim],      [n_head * head_dim]
  wk,
  bk,  // [d_model, n_kv_head * head_dim],   [n_kv_head * head_dim]
  wv,
  bv,  // [d_model, n_kv_head * v_head_dim], [n_kv_head * v_head_dim]
  q_norm_gain,
  k_norm_gain,  // [head_dim], or [n_head * head_dim] and [n_kv_head * head_dim]
  sinks,        // [n_head]
  wo,
  bo,  // [n_head * v_head_dim, d_model], [d_model]
  attention_post_norm_gain,
  attention_post_norm_bias,  // [d_model]
  mlp_norm_gain,
  mlp_norm_bias,  // [d_model]
  w_gate,
  b_gate,  // [d_model, d_ff], [d_ff]
  w_up,
  b_up,  // [d_model, d_ff], [d_ff]
  w_down,
  b_down,  // [d_ff, d_model], [d_model]
  mlp_post_norm_gain,
  mlp_post_norm_bias,  // [d_model]
  final_norm_gain,
  final_norm_bias,  // [d_model], of the model
  head,             // [d_model, vocab_size], of the model; absent if tied
  adapter,          // a LoRA matrix A or B, not part of a model
};
enum class ParameterKind : std::uint8_t { embedding, matrix, head, gain, bias, sink };
ParameterKind kind_of(ParameterRole role) noexcept;

// Shape and name of each parameter of a configuration, in the flat order used everywhere. Allocates no parameters.
struct ParameterInfo {
  std::string name;  // "layers.3.wq"
  Dims shape;
  ParameterRole role;
  std::int64_t layer;  // -1: not in a layer

  // Whether weight decay applies: to embeddings, matrices and the head, not to gains, biases and sinks.
  bool decays() const noexcept { return kind_of(role) <= ParameterKind::head; }
};
std::vector<ParameterInfo> parameter_infos(const ModelConfig& config);
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace qkv
