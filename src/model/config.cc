// SPDX-License-Identifier: Apache-2.0
// What a configuration means and which ones there are by name.
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "qkv/model.h"

namespace qkv {
namespace {

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("[model] " + message); }

void require_size(const char* name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    refuse(std::string(name) + " expected 1 ... " + std::to_string(most) + "; found " + std::to_string(value));
}

void require_positive(const char* name, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(std::string(name) + " expected a positive number; found " + std::to_string(value));
}

void check_rope_scaling(const RopeScaling& s, std::int64_t head_dim) {
  require_positive("rope_scaling.factor", s.factor);
  if (s.low_freq_factor != 0 || s.high_freq_factor != 0) {
    require_positive("rope_scaling.low_freq_factor", s.low_freq_factor);
    require_positive("rope_scaling.high_freq_factor", s.high_freq_factor);
    if (s.high_freq_factor <= s.low_freq_factor)
      refuse("rope_scaling expected high_freq_factor above low_freq_factor; found " +
             std::to_string(s.high_freq_factor) + " and " + std::to_string(s.low_freq_factor));
    require_size("rope_scaling.original_ctx_len", s.original_ctx_len, std::numeric_limits<std::int32_t>::max());
  }
  if (s.frequency_factors.empty()) return;
  if (static_cast<std::int64_t>(s.frequency_factors.size()) != head_dim / 2)
    refuse("rope_scaling.frequency_factors expected one for each of the " + std::to_string(head_dim / 2) +
           " pairs; found " + std::to_string(s.frequency_factors.size()));
  for (const double factor : s.frequency_factors) require_positive("rope_scaling.frequency_factors", factor);
}

// ANDREA: RMSNorm without gain after the embedding sum and before each sub-layer, none before the untied head; ReLU.
ModelConfig andrea(std::int64_t n_layer, std::int64_t n_head, std::int64_t d_model, std::int64_t vocab_size) {
  ModelConfig c;
  c.n_layer = n_layer;
  c.n_head = n_head;
  c.d_model = d_model;
  c.vocab_size = vocab_size;
  c.ctx_len = 1024;
  return c;
}

ModelConfig gpt2() {
  ModelConfig c;
  c.n_layer = c.n_head = 12;
  c.d_model = 768;
  c.vocab_size = 50257;
  c.ctx_len = 1024;
  c.norm = Norm::layernorm;
  c.norm_gain = c.norm_bias = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::gelu;
  c.attention_bias = c.mlp_bias = c.tied_head = true;
  return c;
}

ModelConfig llama_135m() {
  ModelConfig c;
  c.n_layer = 30;
  c.n_head = 9;
  c.n_kv_head = 3;
  c.d_model = 576;
  c.d_ff = 1536;
  c.vocab_size = 49152;
  c.ctx_len = 8192;
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::swiglu;
  c.positions = Positions::rotary;
  c.rope_theta = 100000;
  c.tied_head = true;
  return c;
}

}  // namespace

ModelConfig ModelConfig::resolved() const {
  constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  ModelConfig c = *this;
  require_size("n_layer", c.n_layer, 65536);
  require_size("n_head", c.n_head, kMost);
  require_size("d_model", c.d_model, kMost);
  require_size("vocab_size", c.vocab_size, kMost);
  require_size("ctx_len", c.ctx_len, kMost);
  if (c.n_kv_head == 0) c.n_kv_head = c.n_head;
  require_size("n_kv_head", c.n_kv_head, kMost);
  if (c.n_head % c.n_kv_head != 0)
    refuse("n_head must be a multiple of n_kv_head; found " + std::to_string(c.n_head) + " and " +
           std::to_string(c.n_kv_head));
  if (c.head_dim == 0) {
    if (c.d_model % c.n_head != 0)
      refuse("d_model must be a multiple of n_head unless head_dim is given; found d_model " +
             std::to_string(c.d_model) + " and n_head " + std::to_string(c.n_head));
    c.head_dim = c.d_model / c.n_head;
  }
  require_size("head_dim", c.head_dim, kMost);
  if (c.v_head_dim == 0) c.v_head_dim = c.head_dim;
  require_size("v_head_dim", c.v_head_dim, kMost);
  if (c.d_ff == 0) c.d_ff = 4 * c.d_model;
  require_size("d_ff", c.d_ff, 4 * kMost);
  require_positive("norm_eps", c.norm_eps);
  if (c.norm_bias && c.norm != Norm::layernorm) refuse("norm_bias expected layernorm; found rmsnorm");
  if (c.positions == Positions::rotary) {
    if (c.head_dim % 2 != 0) refuse("rotary positions expected an even head_dim; found " + std::to_string(c.head_dim));
    require_positive("rope_theta", c.rope_theta);
    check_rope_scaling(c.rope_scaling, c.head_dim);
  } else {
    if (!(c.rope_scaling == RopeScaling{})) refuse("rope_scaling expected rotary positions; found learned ones");
    if (!std::isfinite(c.rope_theta)) require_positive("rope_theta", c.rope_theta);  // unused, yet written to files
  }
  return c;
}

std::vector<double> rotary_frequencies(const ModelConfig& config) {
  constexpr double kTurn = 6.283185307179586476925286766559;
  const ModelConfig c = config.resolved();
  const RopeScaling& s = c.rope_scaling;
  const auto original = static_cast<double>(s.original_ctx_len);
  std::vector<double> frequencies;  // [head_dim / 2]
  for (std::int64_t i = 0; i < c.head_dim / 2; ++i) {
    double frequency = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim));
    if (s.low_freq_factor == 0) {
      frequency /= s.factor;
    } else {
      // How many waves fit into the first context: few means a low frequency.
      const double waves = original * frequency / kTurn;
      const double kept = (waves - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      if (kept < 1) frequency *= kept <= 0 ? 1 / s.factor : (1 - kept) / s.factor + kept;
    }
    if (!s.frequency_factors.empty()) frequency /= s.frequency_factors[static_cast<std::size_t>(i)];
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::vector<std::string> preset_names() { return {"andrea-12m", "andrea-120m", "andrea-480m", "gpt2", "llama-135m"}; }

ModelConfig preset(std::string_view name) {
  if (name == "andrea-12m") return andrea(6, 12, 384, 2305).resolved();
  if (name == "andrea-120m") return andrea(12, 12, 768, 8449).resolved();
  if (name == "andrea-480m") return andrea(16, 24, 1536, 8449).resolved();
  if (name == "gpt2") return gpt2().resolved();
  if (name == "llama-135m") return llama_135m().resolved();
  std::string known;
  for (const std::string& n : preset_names()) known += (known.empty() ? "" : ", ") + n;
  refuse("preset expected one of " + known + "; found '" + std::string(name) + "'");
}

}  // namespace qkv
