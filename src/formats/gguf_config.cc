// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "formats/in_quotes.h"
#include "qkv/error.h"

namespace qkv {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kArchitecture = "general.architecture";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

// Keys "llama.NAME" or "gpt2.NAME"; each asked for is known from then on.
class Keys {
 public:
  Keys(const Gguf& file, GgufFamily family) : file_(file), prefix_(std::string(gguf_name(family)) + ".") {}

  std::string full(const std::string& name) {
    known_.push_back(prefix_ + name);
    return known_.back();
  }
  std::int64_t size(const std::string& name) { return file_.integer(full(name), 1, kMost); }
  std::int64_t size(const std::string& name, std::int64_t otherwise) {
    const std::string key = full(name);
    return file_.has(key) ? file_.integer(key, 1, kMost) : otherwise;
  }
  double positive(const std::string& name) {
    const std::string key = full(name);
    const double value = file_.number(key);
    if (!(value > 0)) file_.fail_key(key, "must be above 0; found " + std::to_string(value));
    return value;
  }
  double positive(const std::string& name, double otherwise) {
    return file_.has(full(name)) ? positive(name) : otherwise;
  }
  // A key that may be there with this value alone, since any other would change what is computed.
  void only(const std::string& name, std::int64_t value) {
    const std::string key = full(name);
    if (file_.has(key)) file_.integer(key, value, value);
  }
  void pass_over(const std::string& name) { full(name); }
  void refuse_others() const {
    for (const GgufKey& key : file_.keys())
      if (key.name.starts_with(prefix_) && std::find(known_.begin(), known_.end(), key.name) == known_.end())
        file_.fail_key(key.name, "is not understood");
  }
  [[noreturn]] void fail(const std::string& name, const std::string& reason) { file_.fail_key(full(name), reason); }

 private:
  const Gguf& file_;
  std::string prefix_;
  std::vector<std::string> known_;
};

// Frequencies of a rotation: linear scaling by keys, anything else as factors in a tensor.
RopeScaling read_scaling(const Gguf& file, Keys& keys, std::int64_t head_dim) {
  RopeScaling scaling;
  const std::string type = keys.full("rope.scaling.type");
  const std::string_view kind = file.has(type) ? file.string(type) : "none";
  const double factor = keys.positive("rope.scaling.factor", keys.positive("rope.scale_linear", 1));
  if (kind == "linear" || !file.has(type))
    scaling.factor = factor;
  else if (kind != "none")
    file.fail_key(type, "none and linear are known; found " + in_quotes(kind));
  keys.pass_over("rope.scaling.original_context_length");  // tells of the training
  keys.pass_over("rope.scaling.finetuned");
  const GgufTensor* factors = file.find_tensor("rope_freqs.weight");
  if (!factors) return scaling;
  if (factors->dims.size() != 1 || factors->row() != head_dim / 2)
    throw FileError(file.path(), factors->offset,
                    "tensor 'rope_freqs.weight': expected " + std::to_string(head_dim / 2) + " numbers; found " +
                        std::to_string(factors->row()) + " x " + std::to_string(factors->rows()));
  std::vector<float> values(static_cast<std::size_t>(factors->row()));
  file.read_rows(*factors, 0, 1, values.data());
  scaling.frequency_factors.assign(values.begin(), values.end());
  return scaling;
}

// Sizes that both families have.
ModelConfig read_sizes(Keys& keys) {
  ModelConfig c;
  c.n_layer = keys.size("block_count");
  c.ctx_len = keys.size("context_length");
  c.d_model = keys.size("embedding_length");
  c.d_ff = keys.size("feed_forward_length");
  c.n_head = keys.size("attention.head_count");
  c.n_kv_head = keys.size("attention.head_count_kv", c.n_head);
  c.head_dim = keys.size("attention.key_length", 0);
  if (c.head_dim == 0) {
    if (c.d_model % c.n_head != 0)
      keys.fail("attention.head_count",
                "must divide embedding_length " + std::to_string(c.d_model) + "; found " + std::to_string(c.n_head));
    c.head_dim = c.d_model / c.n_head;
  }
  c.v_head_dim = keys.size("attention.value_length", c.head_dim);
  c.embedding_norm = false;
  c.norm_gain = c.final_norm = true;
  return c;
}

bool has_any(const Gguf& file, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return file.find_tensor(name) != nullptr; });
}

}  // namespace

std::string_view gguf_name(GgufFamily family) noexcept { return family == GgufFamily::llama ? "llama" : "gpt2"; }

bool gguf_holds_model(const Gguf& file) noexcept {
  const GgufKey* key = file.find_key(kArchitecture);
  if (!key || key->type != GgufType::string) return false;
  const std::string_view name(reinterpret_cast<const char*>(key->bytes.data()), key->bytes.size());
  if (name != gguf_name(GgufFamily::llama) && name != gguf_name(GgufFamily::gpt2)) return false;
  return std::any_of(file.keys().begin(), file.keys().end(), [&](const GgufKey& other) {
    return other.name.starts_with(name) && other.name.substr(name.size()).starts_with('.');
  });
}

GgufFamily read_gguf_family(const Gguf& file) {
  const std::string_view name = file.string(kArchitecture);
  for (const GgufFamily family : {GgufFamily::llama, GgufFamily::gpt2})
    if (name == gguf_name(family)) return family;
  file.fail_key(kArchitecture, "the architectures llama and gpt2 are read; found " + in_quotes(name));
}

ModelConfig read_gguf_config(const Gguf& file, GgufFamily family) {
  Keys keys(file, family);
  ModelConfig c = read_sizes(keys);
  if (family == GgufFamily::llama) {
    c.norm_eps = keys.positive("attention.layer_norm_rms_epsilon");
    c.activation = Activation::silu;
    c.gated = true;
    c.positions = Positions::rotary;
    c.rope_theta = keys.positive("rope.freq_base", 10000);
    const std::int64_t turned = keys.size("rope.dimension_count", c.head_dim);
    if (turned != c.head_dim)
      keys.fail("rope.dimension_count",
                "must be the size of a head, " + std::to_string(c.head_dim) + "; found " + std::to_string(turned));
    c.rope_scaling = read_scaling(file, keys, c.head_dim);
    c.qkv_bias = c.output_bias = has_any(file, {"blk.0.attn_q.bias", "blk.0.attn_k.bias", "blk.0.attn_v.bias",
                                                "blk.0.attn_qkv.bias", "blk.0.attn_output.bias"});
    c.mlp_bias = has_any(file, {"blk.0.ffn_gate.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"});
    keys.only("expert_count", 0);
    keys.only("expert_used_count", 0);
  } else {
    c.norm = Norm::layernorm;
    c.norm_bias = true;
    c.norm_eps = keys.positive("attention.layer_norm_epsilon");
    c.activation = Activation::gelu;
    c.positions = Positions::learned;
    c.qkv_bias = c.output_bias = c.mlp_bias = true;
  }
  c.tied_head = file.find_tensor("output.weight") == nullptr;
  keys.pass_over("tensor_data_layout");  // where the file was converted from
  const GgufKey* tokens = file.find_key(kTokens);
  if (!tokens || tokens->type != GgufType::array) file.strings(kTokens);  // throws
  if (tokens->count < 1 || tokens->count > static_cast<std::uint64_t>(kMost)) file.fail_key(kTokens, "holds no tokens");
  c.vocab_size = static_cast<std::int64_t>(tokens->count);
  if (keys.size("vocab_size", c.vocab_size) != c.vocab_size)
    keys.fail("vocab_size", "must be the number of tokens, " + std::to_string(c.vocab_size));
  keys.refuse_others();
  try {
    return c.resolved();
  } catch (const std::invalid_argument& error) {
    throw FileError(file.path(), error.what());
  }
}

GgufFamily gguf_family_of(const ModelConfig& config) {
  const ModelConfig c = config.resolved();
  const bool either = c.norm_gain && c.final_norm && !c.embedding_norm;
  if (either && c.norm == Norm::rmsnorm && c.activation == Activation::silu && c.gated &&
      c.positions == Positions::rotary)
    return GgufFamily::llama;
  if (either && c.norm == Norm::layernorm && c.norm_bias && c.activation == Activation::gelu &&
      c.positions == Positions::learned && c.qkv_bias && c.output_bias && c.mlp_bias && c.n_kv_head == c.n_head &&
      c.head_dim * c.n_head == c.d_model && c.v_head_dim == c.head_dim)
    return GgufFamily::gpt2;
  throw std::invalid_argument(
      "[gguf] expected a model of llama's shape (rmsnorm with gain, swiglu, rotary positions) or of gpt2's (layernorm, "
      "gelu, learned positions, biases), with a final norm and none after the embedding; found neither");
}

void write_gguf_config(GgufWriter& file, GgufFamily family, const ModelConfig& config) {
  const ModelConfig c = config.resolved();
  const std::string name(gguf_name(family)), prefix = name + ".";
  const auto size = [&](const char* key, std::int64_t value) {
    file.u32(prefix + key, static_cast<std::uint32_t>(value));
  };
  file.string(kArchitecture, name);
  size("block_count", c.n_layer);
  size("context_length", c.ctx_len);
  size("embedding_length", c.d_model);
  size("feed_forward_length", c.d_ff);
  size("attention.head_count", c.n_head);
  size("attention.head_count_kv", c.n_kv_head);
  const auto eps = static_cast<float>(c.norm_eps);
  if (family == GgufFamily::gpt2) {
    file.f32(prefix + "attention.layer_norm_epsilon", eps);
    return;
  }
  file.f32(prefix + "attention.layer_norm_rms_epsilon", eps);
  size("attention.key_length", c.head_dim);
  size("attention.value_length", c.v_head_dim);
  size("rope.dimension_count", c.head_dim);
  file.f32(prefix + "rope.freq_base", static_cast<float>(c.rope_theta));
  size("vocab_size", c.vocab_size);
}

}  // namespace qkv
