// SPDX-License-Identifier: Apache-2.0
#include "formats/config_json.h"

#include <algorithm>
#include <stdexcept>
#include <string_view>

#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "os/atomic_file.h"

namespace qkv {
namespace {

constexpr const char* kVersionKey = "qkv_format";
constexpr const char* kTypeKey = "model_type";
constexpr const char* kType = "qkv";
constexpr const char* kScalingKey = "rope_scaling";  // there only where something is scaled

template <class E>
struct Word {
  const char* text;
  E value;
};
constexpr Word<Norm> kNorms[] = {{"rmsnorm", Norm::rmsnorm}, {"layernorm", Norm::layernorm}};
constexpr Word<Activation> kActivations[] = {{"relu", Activation::relu},
                                             {"relu2", Activation::relu2},
                                             {"gelu", Activation::gelu},
                                             {"swiglu", Activation::swiglu}};
constexpr Word<Positions> kPositions[] = {{"learned", Positions::learned}, {"rotary", Positions::rotary}};

// The one list of keys, in the order of the file; `field` is called with each key and member.
template <class Config, class Field>
void for_each_field(Config& c, Field field) {
  field("n_layer", c.n_layer);
  field("n_head", c.n_head);
  field("n_kv_head", c.n_kv_head);
  field("head_dim", c.head_dim);
  field("v_head_dim", c.v_head_dim);
  field("d_model", c.d_model);
  field("d_ff", c.d_ff);
  field("vocab_size", c.vocab_size);
  field("ctx_len", c.ctx_len);
  field("norm", c.norm);
  field("norm_gain", c.norm_gain);
  field("norm_bias", c.norm_bias);
  field("norm_eps", c.norm_eps);
  field("embedding_norm", c.embedding_norm);
  field("final_norm", c.final_norm);
  field("activation", c.activation);
  field("positions", c.positions);
  field("rope_theta", c.rope_theta);
  field("attention_bias", c.attention_bias);
  field("mlp_bias", c.mlp_bias);
  field("tied_head", c.tied_head);
}

class Reader {
 public:
  explicit Reader(const JsonPlace& file) : file_(file) {}

  void operator()(const char* key, std::int64_t& value) const {
    value = file_.at(key).integer(0, std::int64_t{1} << 40);
  }
  void operator()(const char* key, bool& value) const { value = file_.at(key).boolean(); }
  void operator()(const char* key, double& value) const { value = file_.at(key).number(); }
  void operator()(const char* key, Norm& value) const { value = word(key, kNorms); }
  void operator()(const char* key, Activation& value) const { value = word(key, kActivations); }
  void operator()(const char* key, Positions& value) const { value = word(key, kPositions); }

 private:
  template <class E, std::size_t kCount>
  E word(const char* key, const Word<E> (&words)[kCount]) const {
    const JsonPlace place = file_.at(key);
    std::string known;
    for (const auto& [text, value] : words) {
      if (place.string() == text) return value;
      known += known.empty() ? "" : ", ";
      known += text;
    }
    place.fail("expected one of " + known + "; found " + in_quotes(place.string()));
  }

  const JsonPlace& file_;
};

RopeScaling read_scaling(const JsonPlace& place) {
  place.only({"factor", "low_freq_factor", "high_freq_factor", "original_ctx_len", "frequency_factors"});
  RopeScaling scaling;
  scaling.factor = place.at("factor").number();
  scaling.low_freq_factor = place.at("low_freq_factor").number();
  scaling.high_freq_factor = place.at("high_freq_factor").number();
  scaling.original_ctx_len = place.at("original_ctx_len").integer(0, std::int64_t{1} << 40);
  for (const JsonPlace& factor : place.at("frequency_factors").list())
    scaling.frequency_factors.push_back(factor.number());
  return scaling;
}

nlohmann::ordered_json scaling_json(const RopeScaling& scaling) {
  return {{"factor", scaling.factor},
          {"low_freq_factor", scaling.low_freq_factor},
          {"high_freq_factor", scaling.high_freq_factor},
          {"original_ctx_len", scaling.original_ctx_len},
          {"frequency_factors", scaling.frequency_factors}};
}

class Writer {
 public:
  explicit Writer(nlohmann::ordered_json& file) : file_(file) {}

  template <class T>
  void operator()(const char* key, const T& value) const {
    file_[key] = value;
  }
  void operator()(const char* key, Norm value) const { word(key, value, kNorms); }
  void operator()(const char* key, Activation value) const { word(key, value, kActivations); }
  void operator()(const char* key, Positions value) const { word(key, value, kPositions); }

 private:
  template <class E, std::size_t kCount>
  void word(const char* key, E value, const Word<E> (&words)[kCount]) const {
    for (const auto& entry : words)
      if (entry.value == value) file_[key] = entry.text;
  }

  nlohmann::ordered_json& file_;
};

}  // namespace

ModelConfig read_config_json(const JsonPlace& file) {
  if (file.at(kTypeKey).string() != kType)
    file.at(kTypeKey).fail("expected qkv, gpt2 or llama; found " + in_quotes(file.at(kTypeKey).string()));
  const JsonPlace version = file.at(kVersionKey);
  if (version.integer(0, 1 << 30) != kFormatVersion)
    version.fail("this program reads version " + std::to_string(kFormatVersion) + "; found " +
                 std::to_string(version.integer(0, 1 << 30)));
  ModelConfig config;
  std::vector<std::string> known{kVersionKey, kTypeKey, kScalingKey};
  for_each_field(config, [&](const char* key, auto&) { known.emplace_back(key); });
  for (const auto& [key, ignored] : file.object().items())
    if (std::find(known.begin(), known.end(), key) == known.end()) file.fail("has the unknown key " + in_quotes(key));
  for_each_field(config, Reader(file));
  if (file.has(kScalingKey)) config.rope_scaling = read_scaling(file.at(kScalingKey));
  try {
    return config.resolved();
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

nlohmann::ordered_json config_json(const ModelConfig& config) {
  nlohmann::ordered_json file;
  file[kVersionKey] = kFormatVersion;
  file[kTypeKey] = kType;
  const ModelConfig whole = config.resolved();
  for_each_field(whole, Writer(file));
  if (!(whole.rope_scaling == RopeScaling{})) file[kScalingKey] = scaling_json(whole.rope_scaling);
  return file;
}

void write_config_json(const std::string& path, const ModelConfig& config) {
  replace_file(path, config_json(config).dump(2) + "\n");
}

}  // namespace qkv
