// SPDX-License-Identifier: Apache-2.0
#include "formats/families/llama_like.h"

#include <algorithm>
#include <stdexcept>

#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40;
constexpr const char* kFactors = "rope_freqs.weight";

void read_rope(const JsonPlace& file, ModelConfig& c) {
  const bool newer = file.has("rope_parameters");
  c.rope_theta = file.number_or("rope_theta", 10000);
  if (!newer && !file.has("rope_scaling")) return;
  const JsonPlace rope = file.at(newer ? "rope_parameters" : "rope_scaling");
  c.rope_theta = rope.number_or("rope_theta", c.rope_theta);
  if (rope.number_or("partial_rotary_factor", 1) != 1) rope.at("partial_rotary_factor").fail("only 1 is supported");
  const std::string type = rope.string_or("rope_type", rope.string_or("type", "default"));
  if (type == "default") return;
  if (type != "linear" && type != "llama3")
    rope.fail("the rotary scaling " + in_quotes(type) + " is not supported; expected default, linear or llama3");
  rope.only({"rope_type", "type", "rope_theta", "factor", "low_freq_factor", "high_freq_factor",
             "original_max_position_embeddings", "partial_rotary_factor"});
  c.rope_scaling.factor = rope.at("factor").number();
  if (type == "linear") return;
  c.rope_scaling.low_freq_factor = rope.at("low_freq_factor").number();
  c.rope_scaling.high_freq_factor = rope.at("high_freq_factor").number();
  c.rope_scaling.original_ctx_len = rope.at("original_max_position_embeddings").integer(1, kMax);
}

void write_rope(nlohmann::ordered_json& file, const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  file["rope_theta"] = c.rope_theta;
  file["rope_scaling"] = nullptr;
  if (s.low_freq_factor > 0)
    file["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s.factor},
                            {"low_freq_factor", s.low_freq_factor},
                            {"high_freq_factor", s.high_freq_factor},
                            {"original_max_position_embeddings", s.original_ctx_len}};
  else if (s.factor != 1)
    file["rope_scaling"] = {{"rope_type", "linear"}, {"factor", s.factor}};
}

// Whether each layer has a sliding window.
std::vector<bool> read_windowed_layers(const JsonPlace& file, std::int64_t n_layer) {
  std::vector<bool> windowed;
  if (!file.has("layer_types")) {
    const std::int64_t first = file.integer_or("max_window_layers", 28, 0, kMax);
    for (std::int64_t i = 0; i < n_layer; ++i) windowed.push_back(i >= first);
    return windowed;
  }
  for (const JsonPlace& type : file.at("layer_types").list()) {
    windowed.push_back(type.string() == "sliding_attention");
    if (!windowed.back() && type.string() != "full_attention")
      type.fail("expected full_attention or sliding_attention; found " + in_quotes(type.string()));
  }
  if (windowed.size() != static_cast<std::size_t>(n_layer))
    file.at("layer_types")
        .fail("expected one for each of the " + std::to_string(n_layer) + " layers; found " +
              std::to_string(windowed.size()));
  return windowed;
}

void read_windows(const JsonPlace& file, ModelConfig& c) {
  const ModelConfig checked = c.resolved();  // checks n_layer before allocating layers
  const bool used = file.boolean_or("use_sliding_window", false) &&
                    (!file.value().contains("sliding_window") || file.has("sliding_window"));
  const std::int64_t window = used ? file.integer_or("sliding_window", 4096, 1, kMax) : 0;
  if (!used && !file.has("layer_types")) return;
  const std::vector<bool> windowed = read_windowed_layers(file, checked.n_layer);
  const auto count = std::count(windowed.begin(), windowed.end(), true);
  if (count == 0) return;
  if (!used)
    file.at("layer_types").fail("expected use_sliding_window and sliding_window for sliding_attention; found none");
  if (count == checked.n_layer) {
    c.window_left = window - 1;
    return;
  }
  for (const bool one : windowed) c.layers.emplace_back(c).window_left = one ? window - 1 : -1;
}

void write_windows(nlohmann::ordered_json& file, const ModelConfig& c) {
  std::int64_t window_left = -1, first = c.n_layer;
  nlohmann::ordered_json types;
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const bool windowed = c.layer(i).window_left >= 0;
    types.push_back(windowed ? "sliding_attention" : "full_attention");
    if (windowed) window_left = c.layer(i).window_left;
    if (windowed) first = std::min(first, i);
  }
  file["use_sliding_window"] = window_left >= 0;
  file["sliding_window"] = nullptr;
  if (window_left < 0) return;
  file["sliding_window"] = window_left + 1;
  file["max_window_layers"] = first;
  file["layer_types"] = std::move(types);
}

// Linear scaling is stored as keys, any other scaling as a tensor of factors.
void read_gguf_scaling(GgufKeys& keys, ModelConfig& c, RopeFactors factors) {
  const Gguf& file = keys.file();
  const std::string type = keys.full("rope.scaling.type");
  const std::string_view kind = file.has(type) ? file.string(type) : "none";
  double factor = 1;
  keys.positive("rope.scale_linear", factor, 1);
  keys.positive("rope.scaling.factor", factor, factor);
  if (kind == "linear" || !file.has(type))
    c.rope_scaling.factor = factor;
  else if (kind != "none")
    file.fail_key(type, "expected none or linear; found " + in_quotes(kind));
  keys.ignore("rope.scaling.original_context_length");  // only informative
  keys.ignore("rope.scaling.finetuned");
  const GgufTensor* tensor = factors == RopeFactors::tensor ? file.find_tensor(kFactors) : nullptr;
  if (!tensor) return;
  if (tensor->dims.size() != 1 || tensor->row() != c.head_dim / 2)
    throw FileError(file.path(), tensor->offset,
                    "tensor " + in_quotes(kFactors) + ": expected " + std::to_string(c.head_dim / 2) +
                        " numbers; found " + std::to_string(tensor->row()) + " x " + std::to_string(tensor->rows()));
  std::vector<float> values(static_cast<std::size_t>(tensor->row()));
  file.read_rows(*tensor, 0, 1, values.data());
  c.rope_scaling.frequency_factors.assign(values.begin(), values.end());
}

void write_gguf_scaling(GgufKeys& keys, const ModelConfig& c, RopeFactors factors) {
  if (c.rope_scaling == RopeScaling{}) return;
  if (factors == RopeFactors::none) {
    keys.written().string(keys.full("rope.scaling.type"), "linear");
    keys.written().f32(keys.full("rope.scaling.factor"), static_cast<float>(c.rope_scaling.factor));
    return;
  }
  std::vector<float> values;  // [rotated / 2]
  for (const double divisor : rotary_divisors(c)) values.push_back(static_cast<float>(divisor));
  keys.written().tensor(kFactors, {static_cast<std::int64_t>(values.size())}, DType::f32,
                        [values](std::int64_t, float* to) { std::copy(values.begin(), values.end(), to); });
}

}  // namespace

ModelConfig llama_like() {
  ModelConfig c;
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  return c;
}

void hf_llama_like_sizes(HfKeys& file, ModelConfig& c, std::int64_t head_dim, std::int64_t ctx_len) {
  file.size("num_hidden_layers", c.n_layer);
  file.size("num_attention_heads", c.n_head);
  file.size("num_key_value_heads", c.n_kv_head, 0);
  file.size("head_dim", c.head_dim, head_dim);
  file.size("hidden_size", c.d_model);
  file.size("intermediate_size", c.d_ff);
  file.size("max_position_embeddings", c.ctx_len, ctx_len);
  file.size("vocab_size", c.vocab_size);
  file.word("hidden_act", c.activation, {{"silu", Activation::silu}});
  file.number("rms_norm_eps", c.norm_eps, 1e-6);
}

void hf_rope(HfKeys& file, ModelConfig& c) {
  file.only("partial_rotary_factor", 1.0);
  if (file.reads())
    read_rope(file.file(), c);
  else
    write_rope(file.written(), c);
}

void hf_windows(HfKeys& file, ModelConfig& c) {
  if (file.reads())
    read_windows(file.file(), c);
  else
    write_windows(file.written(), c);
}

void gguf_sizes(GgufKeys& file, ModelConfig& c) {
  file.size("block_count", c.n_layer);
  file.size("context_length", c.ctx_len);
  file.size("embedding_length", c.d_model);
  file.size("feed_forward_length", c.d_ff);
  file.size("attention.head_count", c.n_head);
  file.size("attention.head_count_kv", c.n_kv_head, c.n_head);
}

void gguf_head_sizes(GgufKeys& file, ModelConfig& c) {
  file.size("attention.key_length", c.head_dim, 0);
  file.size("attention.value_length", c.v_head_dim, c.head_dim);
  if (file.reads()) c = c.resolved();  // resolves the sizes that the keys below are checked against
}

void gguf_llama_like(GgufKeys& file, ModelConfig& c, RopeFactors factors) {
  gguf_sizes(file, c);
  file.positive("attention.layer_norm_rms_epsilon", c.norm_eps);
  gguf_head_sizes(file, c);
  std::int64_t rotated = c.head_dim;
  file.size("rope.dimension_count", rotated, c.head_dim);
  if (rotated != c.head_dim)
    file.file().fail_key(
        file.full("rope.dimension_count"),
        "must be the size of a head, " + std::to_string(c.head_dim) + "; found " + std::to_string(rotated));
  file.positive("rope.freq_base", c.rope_theta, 10000);
  if (file.reads())
    read_gguf_scaling(file, c, factors);
  else
    write_gguf_scaling(file, c, factors);
  if (!file.reads()) file.written().u32(file.full("vocab_size"), static_cast<std::uint32_t>(c.vocab_size));
}

}  // namespace qkv
