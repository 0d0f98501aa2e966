// SPDX-License-Identifier: Apache-2.0
#include "formats/config_json.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "formats/families/family.h"
#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "os/atomic_file.h"
#include "qkv/model_members.h"

namespace qkv {
namespace {

constexpr const char* kVersionKey = "qkv_format";
constexpr const char* kTypeKey = "model_type";
constexpr const char* kType = "qkv";
constexpr const char* kScalingKey = "rope_scaling";  // written only if RoPE scaling is configured
constexpr const char* kLayersKey = "layers";         // written only if layers differ

// Whether an absent key is an error or leaves the member unchanged.
enum class Absent : std::uint8_t { error, unchanged };

void read_value(const JsonPlace& place, std::int64_t& value) { value = place.integer(-1, std::int64_t{1} << 40); }
void read_value(const JsonPlace& place, bool& value) { value = place.boolean(); }
void read_value(const JsonPlace& place, double& value) { value = place.number(); }
void read_value(const JsonPlace& place, std::vector<double>& value) {
  value.clear();
  for (const JsonPlace& number : place.list()) value.push_back(number.number());
}
template <class E>
requires std::is_enum_v<E>
void read_value(const JsonPlace& place, E& value) {
  constexpr const auto& words = kEnumNames<E>;
  const auto found = std::find(words.begin(), words.end(), place.string());
  std::string known;
  for (const std::string_view word : words) known += (known.empty() ? "" : ", ") + std::string(word);
  if (found == words.end()) place.fail("expected one of " + known + "; found " + in_quotes(place.string()));
  value = static_cast<E>(found - words.begin());
}

// Reads the members of `config` by key; any key that is neither a member nor in `others` is an error.
template <class Config>
void read_members(const JsonPlace& file, Config& config, Absent absent, std::vector<std::string> others) {
  for_each_member(config, [&](const char* key, auto& value) {
    if (absent == Absent::error || file.has(key)) read_value(file.at(key), value);
    others.emplace_back(key);
  });
  for (const auto& [key, ignored] : file.object().items())
    if (std::find(others.begin(), others.end(), key) == others.end())
      file.fail("has the unknown key " + in_quotes(key));
}

void read_scaling(const JsonPlace& file, RopeScaling& scaling) {
  if (file.has(kScalingKey)) read_members(file.at(kScalingKey), scaling, Absent::error, {});
}

ModelConfig read_version_2(const JsonPlace& file) {
  ModelConfig config;
  read_members(file, config, Absent::error, {kVersionKey, kTypeKey, kScalingKey, kLayersKey});
  read_scaling(file, config.rope_scaling);
  if (!file.has(kLayersKey)) return config;
  const std::vector<JsonPlace> places = file.at(kLayersKey).list();
  if (places.size() != static_cast<std::size_t>(config.n_layer))
    file.at(kLayersKey)
        .fail("expected one for each of the " + std::to_string(config.n_layer) + " layers; found " +
              std::to_string(places.size()));
  for (const JsonPlace& place : places) {
    LayerConfig& layer = config.layers.emplace_back(config);  // common configuration, then the layer's own keys
    read_members(place, layer, Absent::unchanged, {kScalingKey});
    read_scaling(place, layer.rope_scaling);
  }
  return config;
}

// All keys of a version 1 file except rope_scaling.
constexpr std::string_view kVersion1[] = {"qkv_format",     "model_type",     "n_layer",    "n_head",    "n_kv_head",
                                          "head_dim",       "v_head_dim",     "d_model",    "d_ff",      "vocab_size",
                                          "ctx_len",        "norm",           "norm_gain",  "norm_bias", "norm_eps",
                                          "embedding_norm", "final_norm",     "activation", "positions", "rope_theta",
                                          "mlp_bias",       "attention_bias", "tied_head"};

// Converts a version 1 file to version 2, which has separate keys for the two kinds of attention biases, and gated silu
// instead of "swiglu".
ModelConfig read_version_1(const JsonPlace& file) {
  for (const std::string_view key : kVersion1) file.at(std::string(key));
  for (const auto& [key, ignored] : file.object().items())
    if (key != kScalingKey && std::find(std::begin(kVersion1), std::end(kVersion1), key) == std::end(kVersion1))
      file.fail("has the unknown key " + in_quotes(key));
  nlohmann::json newer = members_json(ModelConfig{});
  newer.update(members_json(LayerConfig{}));
  newer.erase(kScalingKey);
  newer.update(file.object());
  const std::string activation = file.at("activation").string();
  if (activation == "silu" || activation == "gelu_erf")
    file.at("activation").fail("expected one of relu, relu2, gelu, swiglu; found " + in_quotes(activation));
  newer["gated"] = activation == "swiglu";
  if (activation == "swiglu") newer["activation"] = "silu";
  newer["qkv_bias"] = newer["output_bias"] = file.at("attention_bias").boolean();
  newer.erase("attention_bias");
  if (file.has(kScalingKey) && newer[kScalingKey].is_object()) newer[kScalingKey]["attention_factor"] = 1;
  return read_version_2(file.with(newer));
}

template <class Config>
nlohmann::ordered_json members_of(const Config& config) {
  nlohmann::ordered_json file = nlohmann::ordered_json::object();
  for_each_member(config, [&](const char* key, const auto& value) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(value)>>)
      file[key] = enum_name(value);
    else
      file[key] = value;
  });
  return file;
}

}  // namespace

ModelConfig read_config_json(const JsonPlace& file) {
  if (file.at(kTypeKey).string() != kType)
    file.at(kTypeKey).fail("expected one of qkv, " + known_families(FileFormat::hugging_face) + "; found " +
                           in_quotes(file.at(kTypeKey).string()));
  const JsonPlace version = file.at(kVersionKey);
  const std::int64_t found = version.integer(0, 1 << 30);
  if (found < 1 || found > kFormatVersion)
    version.fail("expected version 1 to " + std::to_string(kFormatVersion) + "; found " + std::to_string(found));
  try {
    return (found == 1 ? read_version_1(file) : read_version_2(file)).resolved();
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

nlohmann::ordered_json members_json(const LayerConfig& layer) {
  nlohmann::ordered_json file = members_of(layer);
  file[kScalingKey] = members_of(layer.rope_scaling);
  return file;
}

nlohmann::ordered_json members_json(const ModelConfig& config) {
  nlohmann::ordered_json file = members_of(config);
  const nlohmann::ordered_json inherited = members_of(static_cast<const LayerConfig&>(config));
  for (const auto& [key, ignored] : inherited.items()) file.erase(key);
  return file;
}

nlohmann::ordered_json config_json(const ModelConfig& config) {
  const ModelConfig whole = config.resolved();
  nlohmann::ordered_json file = {{kVersionKey, kFormatVersion}, {kTypeKey, kType}};
  file.update(members_of(whole));
  if (!(whole.rope_scaling == RopeScaling{})) file[kScalingKey] = members_of(whole.rope_scaling);
  const nlohmann::ordered_json every = members_json(static_cast<const LayerConfig&>(whole));
  for (const LayerConfig& layer : whole.layers) {
    nlohmann::ordered_json differences = nlohmann::ordered_json::object();
    const nlohmann::ordered_json members = members_json(layer);
    for (const auto& [key, value] : members.items())
      if (value != every[key]) differences[key] = value;
    file[kLayersKey].push_back(std::move(differences));
  }
  return file;
}

void write_config_json(const std::string& path, const ModelConfig& config) {
  replace_file(path, config_json(config).dump(2) + "\n");
}

}  // namespace qkv
