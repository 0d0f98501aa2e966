// SPDX-License-Identifier: Apache-2.0
// Validation and resolution of model configurations, and the presets.
#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "core/number_text.h"
#include "qkv/model_config.h"

namespace qkv {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument("[model] " + message); }

void require_size(const char* name, std::int64_t value, std::int64_t most) {
  if (value < 1 || value > most)
    refuse(std::string(name) + " expected 1 ... " + std::to_string(most) + "; found " + std::to_string(value));
}

void require_positive(const char* name, double value) {
  if (!(value > 0) || !std::isfinite(value))
    refuse(std::string(name) + " expected a positive number; found " + number_text(value));
}

void check_rope_scaling(const RopeScaling& s, std::int64_t rotated) {
  require_positive("rope_scaling.factor", s.factor);
  require_positive("rope_scaling.attention_factor", s.attention_factor);
  if (s.low_freq_factor != 0 || s.high_freq_factor != 0) {
    require_positive("rope_scaling.low_freq_factor", s.low_freq_factor);
    require_positive("rope_scaling.high_freq_factor", s.high_freq_factor);
    if (s.high_freq_factor <= s.low_freq_factor)
      refuse("rope_scaling expected high_freq_factor above low_freq_factor; found " + number_text(s.high_freq_factor) +
             " and " + number_text(s.low_freq_factor));
    require_size("rope_scaling.original_ctx_len", s.original_ctx_len, kMax);
  }
  if (s.frequency_factors.empty()) return;
  if (static_cast<std::int64_t>(s.frequency_factors.size()) != rotated / 2)
    refuse("rope_scaling.frequency_factors expected one for each of the " + std::to_string(rotated / 2) +
           " pairs; found " + std::to_string(s.frequency_factors.size()));
  for (const double factor : s.frequency_factors) require_positive("rope_scaling.frequency_factors", factor);
}

void check_positions(const LayerConfig& c) {
  if (c.positions == Positions::rotary) {
    if (!(c.rope_share > 0 && c.rope_share <= 1))
      refuse("rope_share expected a number above 0 and at most 1; found " + number_text(c.rope_share));
    const std::int64_t rotated = rotated_dims(c);
    if (rotated < 2 || rotated % 2 != 0)
      refuse("rotary positions require an even number of rotated dimensions, " +
             std::string(c.rope_share == 1 ? "head_dim" : "head_dim * rope_share") + "; found " +
             std::to_string(rotated));
    require_positive("rope_theta", c.rope_theta);
    check_rope_scaling(c.rope_scaling, rotated);
  } else {
    if (!(c.rope_scaling == RopeScaling{}) || c.rope_share != 1)
      refuse("rope_scaling and rope_share require rotary positions; found " +
             std::string(c.positions == Positions::learned ? "learned" : "none"));
    if (!std::isfinite(c.rope_theta))
      require_positive("rope_theta", c.rope_theta);  // unused here, but written to files
  }
}

void check_attention(const LayerConfig& c) {
  if (c.window_left < -1) refuse("window_left expected -1 or more; found " + std::to_string(c.window_left));
  if (c.attention_scale != 0) require_positive("attention_scale", c.attention_scale);
  if (c.softcap != 0) require_positive("softcap", c.softcap);
  check_positions(c);
}

void check_norms(const LayerConfig& c) {
  require_positive("norm_eps", c.norm_eps);
  if (c.norm_bias && c.norm != Norm::layernorm) refuse("norm_bias requires layernorm; found rmsnorm");
  if (c.norm_gain_offset && !c.norm_gain) refuse("norm_gain_offset requires norm_gain; found norm_gain false");
  if (c.residual == Residual::parallel_shared_norm && c.norm_place != NormPlace::before)
    refuse("residual parallel_shared_norm requires norm_place before; found another value");
  require_positive("residual_scale", c.residual_scale);
}

// The layer with all derived sizes filled in.
LayerConfig resolved_layer(LayerConfig c, std::int64_t d_model) {
  require_size("n_head", c.n_head, kMax);
  if (c.n_kv_head == 0) c.n_kv_head = c.n_head;
  require_size("n_kv_head", c.n_kv_head, kMax);
  if (c.n_head % c.n_kv_head != 0)
    refuse("n_head must be a multiple of n_kv_head; found " + std::to_string(c.n_head) + " and " +
           std::to_string(c.n_kv_head));
  if (c.head_dim == 0) {
    if (d_model % c.n_head != 0)
      refuse("d_model must be a multiple of n_head unless head_dim is given; found d_model " + std::to_string(d_model) +
             " and n_head " + std::to_string(c.n_head));
    c.head_dim = d_model / c.n_head;
  }
  require_size("head_dim", c.head_dim, kMax);
  if (c.v_head_dim == 0) c.v_head_dim = c.head_dim;
  require_size("v_head_dim", c.v_head_dim, kMax);
  if (c.d_ff == 0) c.d_ff = 4 * d_model;
  require_size("d_ff", c.d_ff, 4 * kMax);
  check_attention(c);
  check_norms(c);
  return c;
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

ModelConfig gpt2(std::int64_t n_layer, std::int64_t n_head, std::int64_t d_model, std::int64_t vocab_size,
                 std::int64_t ctx_len) {
  ModelConfig c;
  c.n_layer = n_layer;
  c.n_head = n_head;
  c.d_model = d_model;
  c.vocab_size = vocab_size;
  c.ctx_len = ctx_len;
  c.norm = Norm::layernorm;
  c.norm_gain = c.norm_bias = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::gelu;
  c.qkv_bias = c.output_bias = c.mlp_bias = c.tied_head = true;
  return c;
}

ModelConfig llama(std::int64_t n_layer, std::int64_t n_head, std::int64_t d_model, std::int64_t vocab_size,
                  std::int64_t ctx_len) {
  ModelConfig c;
  c.n_layer = n_layer;
  c.n_head = n_head;
  c.d_model = d_model;
  c.d_ff = gated_d_ff(d_model);
  c.vocab_size = vocab_size;
  c.ctx_len = ctx_len;
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  c.tied_head = true;
  return c;
}

ModelConfig llama_135m() {
  ModelConfig c = llama(30, 9, 576, 49152, 8192);
  c.n_kv_head = 3;
  c.rope_theta = 100000;
  return c;
}

// The presets, smallest first within each family.
struct Preset {
  const char* name;
  ModelConfig (*config)();
};
constexpr Preset kPresets[] = {
    {"llama-1m", [] { return llama(5, 4, 128, 2048, 128); }},
    {"llama-4m", [] { return llama(8, 6, 192, 4096, 256); }},
    {"llama-10m", [] { return llama(7, 5, 320, 4096, 512); }},
    {"llama-135m", llama_135m},
    {"gpt2-4m", [] { return gpt2(8, 6, 192, 4096, 256); }},
    {"gpt2", [] { return gpt2(12, 12, 768, 50257, 1024); }},
    {"andrea-12m", [] { return andrea(6, 12, 384, 2305); }},
    {"andrea-120m", [] { return andrea(12, 12, 768, 8449); }},
    {"andrea-480m", [] { return andrea(16, 24, 1536, 8449); }},
};

}  // namespace

ModelConfig ModelConfig::resolved() const {
  ModelConfig c = *this;
  require_size("n_layer", c.n_layer, 65536);
  require_size("d_model", c.d_model, kMax);
  require_size("vocab_size", c.vocab_size, kMax);
  require_size("ctx_len", c.ctx_len, kMax);
  require_positive("embedding_scale", c.embedding_scale);
  require_positive("logit_scale", c.logit_scale);
  if (c.logit_softcap != 0) require_positive("logit_softcap", c.logit_softcap);
  static_cast<LayerConfig&>(c) = resolved_layer(c, c.d_model);
  if (!c.layers.empty() && c.layers.size() != static_cast<std::size_t>(c.n_layer))
    refuse("layers expected one for each of the " + std::to_string(c.n_layer) + " layers; found " +
           std::to_string(c.layers.size()));
  for (LayerConfig& one : c.layers) {
    one = resolved_layer(one, c.d_model);
    if (one.positions == Positions::learned && c.positions != Positions::learned)
      refuse("learned positions in a layer require learned positions in the model");
  }
  const auto as_all = [&](const LayerConfig& one) { return one == static_cast<const LayerConfig&>(c); };
  if (std::all_of(c.layers.begin(), c.layers.end(), as_all)) c.layers.clear();
  return c;
}

std::int64_t rotated_dims(const LayerConfig& c) {
  if (c.positions != Positions::rotary) return 0;
  return static_cast<std::int64_t>(static_cast<double>(c.head_dim) * c.rope_share);
}

std::vector<double> rotary_frequencies(const LayerConfig& c) {
  constexpr double kTurn = 6.283185307179586476925286766559;
  const RopeScaling& s = c.rope_scaling;
  const auto original = static_cast<double>(s.original_ctx_len);
  const std::int64_t rotated = rotated_dims(c);
  std::vector<double> frequencies;  // [rotated / 2]
  for (std::int64_t i = 0; i < rotated / 2; ++i) {
    double frequency = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotated));
    if (s.low_freq_factor == 0) {
      frequency /= s.factor;
    } else {
      // Wavelengths per original context: few means a low frequency.
      const double waves = original * frequency / kTurn;
      const double kept = (waves - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
      if (kept < 1) frequency *= kept <= 0 ? 1 / s.factor : (1 - kept) / s.factor + kept;
    }
    if (!s.frequency_factors.empty()) frequency /= s.frequency_factors[static_cast<std::size_t>(i)];
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::vector<float> alibi_slopes(std::int64_t n_head) {
  std::int64_t power = 1;  // the largest power of two up to n_head
  while (2 * power <= n_head) power *= 2;
  std::vector<float> slopes;  // [n_head]
  for (std::int64_t h = 0; h < n_head; ++h) {
    const bool between = h >= power;  // from the slopes of 2 * power heads, every other one
    const double exponent = between ? -4.0 * static_cast<double>(2 * (h - power) + 1) / static_cast<double>(power)
                                    : -8.0 * static_cast<double>(h + 1) / static_cast<double>(power);
    slopes.push_back(static_cast<float>(std::exp2(exponent)));
  }
  return slopes;
}

std::int64_t gated_d_ff(std::int64_t d_model) {
  constexpr std::int64_t kMultiple = 32;
  return std::max(kMultiple, (8 * d_model / 3 + kMultiple / 2) / kMultiple * kMultiple);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& one : kPresets) names.emplace_back(one.name);
  return names;
}

ModelConfig preset(std::string_view name) {
  std::string known;
  for (const Preset& one : kPresets) {
    if (name == one.name) return one.config().resolved();
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  refuse("preset expected one of " + known + "; found '" + std::string(name) + "'");
}

}  // namespace qkv
