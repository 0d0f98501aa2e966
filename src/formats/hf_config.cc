// SPDX-License-Identifier: Apache-2.0
#include "formats/hf_config.h"

#include <limits>
#include <stdexcept>

#include "formats/in_quotes.h"

namespace qkv {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 40;

std::int64_t size_of(const JsonPlace& file, const char* key) { return file.at(key).integer(1, kMost); }

// A key that would change the numbers may be there with the one value that does not.
void require_flag(const JsonPlace& file, const char* key, bool value) {
  if (file.boolean_or(key, value) != value)
    file.at(key).fail(std::string("only ") + (value ? "true" : "false") + " is supported");
}

void refuse_given(const JsonPlace& file, const char* key) {
  if (file.has(key)) file.at(key).fail("is not supported; found one");
}

ModelConfig read_gpt2(const JsonPlace& file) {
  ModelConfig c;
  c.n_layer = size_of(file, "n_layer");
  c.n_head = size_of(file, "n_head");
  c.d_model = size_of(file, "n_embd");
  c.d_ff = file.integer_or("n_inner", 0, 1, kMost);
  c.vocab_size = size_of(file, "vocab_size");
  c.ctx_len = file.integer_or("n_positions", 1024, 1, kMost);
  c.norm = Norm::layernorm;
  c.norm_gain = c.norm_bias = c.final_norm = c.qkv_bias = c.output_bias = c.mlp_bias = true;
  c.embedding_norm = false;
  c.norm_eps = file.number_or("layer_norm_epsilon", 1e-5);
  const std::string activation = file.string_or("activation_function", "gelu_new");
  if (activation == "gelu_new" || activation == "gelu_pytorch_tanh" || activation == "gelu_fast")
    c.activation = Activation::gelu;
  else if (activation == "relu")
    c.activation = Activation::relu;
  else
    file.at("activation_function").fail("expected gelu_new or relu; found " + in_quotes(activation));
  c.tied_head = file.boolean_or("tie_word_embeddings", true);
  require_flag(file, "scale_attn_weights", true);
  require_flag(file, "scale_attn_by_inverse_layer_idx", false);
  require_flag(file, "add_cross_attention", false);
  return c;
}

// rope_scaling of version 4, or rope_parameters of version 5, which holds the base too.
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
  c.rope_scaling.original_ctx_len = rope.at("original_max_position_embeddings").integer(1, kMost);
}

ModelConfig read_llama(const JsonPlace& file) {
  ModelConfig c;
  c.n_layer = size_of(file, "num_hidden_layers");
  c.n_head = size_of(file, "num_attention_heads");
  c.n_kv_head = file.integer_or("num_key_value_heads", 0, 1, kMost);
  c.head_dim = file.integer_or("head_dim", 0, 1, kMost);
  c.d_model = size_of(file, "hidden_size");
  c.d_ff = size_of(file, "intermediate_size");
  c.vocab_size = size_of(file, "vocab_size");
  c.ctx_len = file.integer_or("max_position_embeddings", 2048, 1, kMost);
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.norm_eps = file.number_or("rms_norm_eps", 1e-6);
  const std::string activation = file.string_or("hidden_act", "silu");
  if (activation != "silu") file.at("hidden_act").fail("expected silu; found " + in_quotes(activation));
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  read_rope(file, c);
  if (file.number_or("partial_rotary_factor", 1) != 1) file.at("partial_rotary_factor").fail("only 1 is supported");
  c.qkv_bias = c.output_bias = file.boolean_or("attention_bias", false);
  c.mlp_bias = file.boolean_or("mlp_bias", false);
  c.tied_head = file.boolean_or("tie_word_embeddings", false);
  return c;
}

nlohmann::ordered_json one_or_list(const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? nlohmann::ordered_json(ids[0]) : nlohmann::ordered_json(ids);
}

nlohmann::ordered_json id_or_null(std::int32_t id) {
  return id < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(id);
}

nlohmann::ordered_json gpt2_json(const ModelConfig& c) {
  return {{"n_layer", c.n_layer},
          {"n_head", c.n_head},
          {"n_embd", c.d_model},
          {"n_inner", c.d_ff},
          {"n_positions", c.ctx_len},
          {"n_ctx", c.ctx_len},
          {"vocab_size", c.vocab_size},
          {"activation_function", c.activation == Activation::gelu ? "gelu_new" : "relu"},
          {"layer_norm_epsilon", c.norm_eps},
          {"attn_pdrop", 0.0},
          {"embd_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

nlohmann::ordered_json llama_json(const ModelConfig& c) {
  nlohmann::ordered_json file = {{"num_hidden_layers", c.n_layer},
                                 {"num_attention_heads", c.n_head},
                                 {"num_key_value_heads", c.n_kv_head},
                                 {"head_dim", c.head_dim},
                                 {"hidden_size", c.d_model},
                                 {"intermediate_size", c.d_ff},
                                 {"max_position_embeddings", c.ctx_len},
                                 {"vocab_size", c.vocab_size},
                                 {"hidden_act", "silu"},
                                 {"rms_norm_eps", c.norm_eps},
                                 {"attention_bias", c.qkv_bias},
                                 {"mlp_bias", c.mlp_bias},
                                 {"rope_theta", c.rope_theta},
                                 {"rope_scaling", nullptr}};
  const RopeScaling& s = c.rope_scaling;
  if (s.low_freq_factor > 0)
    file["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", s.factor},
                            {"low_freq_factor", s.low_freq_factor},
                            {"high_freq_factor", s.high_freq_factor},
                            {"original_max_position_embeddings", s.original_ctx_len}};
  else if (s.factor != 1)
    file["rope_scaling"] = {{"rope_type", "linear"}, {"factor", s.factor}};
  return file;
}

// What keeps a configuration from being of a family; empty if nothing does.
std::string misfit(HfFamily family, const ModelConfig& c) {
  if (c.embedding_norm) return "a norm after the embeddings";
  if (!c.final_norm) return "no norm before the head";
  if (!c.norm_gain) return "norms without gain";
  if (c.v_head_dim != c.head_dim) return "v_head_dim other than head_dim";
  if (family == HfFamily::gpt2) {
    if (c.norm != Norm::layernorm || !c.norm_bias) return "norms other than LayerNorm with gain and bias";
    if (c.positions != Positions::learned) return "rotary positions";
    if (c.activation != Activation::gelu && c.activation != Activation::relu) return "another activation than GELU";
    if (!c.qkv_bias || !c.output_bias || !c.mlp_bias) return "products without bias";
    if (c.n_kv_head != c.n_head) return "grouped queries";
    if (c.n_head * c.head_dim != c.d_model) return "heads that together are not d_model wide";
    return "";
  }
  if (c.norm != Norm::rmsnorm) return "LayerNorm";
  if (c.positions != Positions::rotary) return "learned positions";
  if (c.qkv_bias != c.output_bias) return "biases of only some of W_Q, W_K, W_V and W_O";
  if (c.activation != Activation::silu || !c.gated) return "another activation than SwiGLU";
  if (!c.rope_scaling.frequency_factors.empty()) return "a rotary factor for each frequency";
  return "";
}

}  // namespace

std::string_view hf_name(HfFamily family) noexcept { return family == HfFamily::gpt2 ? "gpt2" : "llama"; }

std::optional<HfFamily> hf_family_from_name(std::string_view name) noexcept {
  for (const HfFamily family : {HfFamily::gpt2, HfFamily::llama})
    if (name == hf_name(family)) return family;
  return std::nullopt;
}

ModelConfig read_hf_config(const JsonPlace& file, HfFamily family) {
  refuse_given(file, "quantization_config");
  const ModelConfig config = family == HfFamily::gpt2 ? read_gpt2(file) : read_llama(file);
  try {
    return config.resolved();
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

std::vector<std::int32_t> read_hf_end_tokens(const JsonPlace& file) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int32_t>::max();
  std::vector<std::int32_t> ids;
  if (!file.has("eos_token_id")) return ids;
  const JsonPlace place = file.at("eos_token_id");
  if (!place.value().is_array()) return {static_cast<std::int32_t>(place.integer(0, kLargest))};
  for (const JsonPlace& id : place.list()) ids.push_back(static_cast<std::int32_t>(id.integer(0, kLargest)));
  return ids;
}

HfFamily hf_family_of(const ModelConfig& config) {
  const ModelConfig c = config.resolved();
  const std::string gpt2 = misfit(HfFamily::gpt2, c), llama = misfit(HfFamily::llama, c);
  if (gpt2.empty()) return HfFamily::gpt2;
  if (llama.empty()) return HfFamily::llama;
  throw std::invalid_argument("[hugging face] expected a model of gpt2's or llama's shape; found " +
                              (gpt2 == llama ? gpt2 : gpt2 + " (not gpt2) and " + llama + " (not llama)"));
}

std::string hf_config_text(HfFamily family, const ModelConfig& config, const std::string& dtype,
                           const std::vector<std::int32_t>& end_tokens, const NamedTokens& named) {
  const ModelConfig c = config.resolved();
  nlohmann::ordered_json file = {{"architectures", {family == HfFamily::gpt2 ? "GPT2LMHeadModel" : "LlamaForCausalLM"}},
                                 {"model_type", hf_name(family)},
                                 {"torch_dtype", dtype},
                                 {"tie_word_embeddings", c.tied_head},
                                 {"bos_token_id", id_or_null(named.begin)},
                                 {"eos_token_id", one_or_list(end_tokens)},
                                 {"pad_token_id", id_or_null(named.padding)}};
  file.update(family == HfFamily::gpt2 ? gpt2_json(c) : llama_json(c));
  return file.dump(2) + "\n";
}

std::string hf_generation_config_text(const std::vector<std::int32_t>& end_tokens, const NamedTokens& named) {
  nlohmann::ordered_json file = {{"eos_token_id", one_or_list(end_tokens)}};
  if (named.begin >= 0) file["bos_token_id"] = named.begin;
  if (named.padding >= 0) file["pad_token_id"] = named.padding;
  if (named.unknown >= 0) file["unk_token_id"] = named.unknown;
  return file.dump(2) + "\n";
}

}  // namespace qkv
