// SPDX-License-Identifier: Apache-2.0
#include "formats/config_json.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string_view>

#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "os/atomic_file.h"
#include "qkv/model_members.h"

namespace qkv {
namespace {

constexpr const char* kVersionKey = "qkv_format";
constexpr const char* kTypeKey = "model_type";
constexpr const char* kType = "qkv";
constexpr const char* kScalingKey = "rope_scaling";  // there only where something is scaled
constexpr const char* kLayersKey = "layers";         // there only where layers differ

// Whether a key that is absent leaves the member as it is, or is an error.
enum class Absent : std::uint8_t { error, unchanged };

class Reader {
 public:
  Reader(const JsonPlace& file, Absent absent) : file_(file), absent_(absent) {}

  template <class T>
  void operator()(const char* key, T& value) const {
    if (absent_ == Absent::error || file_.has(key)) read(file_.at(key), value);
  }

 private:
  static void read(const JsonPlace& place, std::int64_t& value) { value = place.integer(-1, std::int64_t{1} << 40); }
  static void read(const JsonPlace& place, bool& value) { value = place.boolean(); }
  static void read(const JsonPlace& place, double& value) { value = place.number(); }
  static void read(const JsonPlace& place, std::vector<double>& value) {
    value.clear();
    for (const JsonPlace& number : place.list()) value.push_back(number.number());
  }
  template <class E>
  requires std::is_enum_v<E>
  static void read(const JsonPlace& place, E& value) {
    constexpr const auto& words = kEnumNames<E>;
    const auto found = std::find(words.begin(), words.end(), place.string());
    if (found != words.end()) {
      value = static_cast<E>(found - words.begin());
      return;
    }
    std::string known;
    for (const std::string_view text : words) known += (known.empty() ? "" : ", ") + std::string(text);
    place.fail("expected one of " + known + "; found " + in_quotes(place.string()));
  }

  const JsonPlace& file_;
  Absent absent_;
};

// Keys that are neither members of the configuration nor `others`.
template <class Config>
void refuse_unknown(const JsonPlace& file, Config& config, std::vector<std::string> others) {
  for_each_member(config, [&](const char* key, auto&) { others.emplace_back(key); });
  for (const auto& [key, ignored] : file.object().items())
    if (std::find(others.begin(), others.end(), key) == others.end())
      file.fail("has the unknown key " + in_quotes(key));
}

RopeScaling read_scaling(const JsonPlace& place) {
  RopeScaling scaling;
  refuse_unknown(place, scaling, {});
  for_each_member(scaling, Reader(place, Absent::unchanged));
  return scaling;
}

// A layer, of which the file has what differs from what describes every layer.
LayerConfig read_layer(const JsonPlace& place, const LayerConfig& all) {
  LayerConfig layer = all;
  refuse_unknown(place, layer, {kScalingKey});
  for_each_member(layer, Reader(place, Absent::unchanged));
  if (place.has(kScalingKey)) layer.rope_scaling = read_scaling(place.at(kScalingKey));
  return layer;
}

class Writer {
 public:
  explicit Writer(nlohmann::ordered_json& file) : file_(file) {}

  template <class T>
  void operator()(const char* key, const T& value) const {
    if constexpr (std::is_enum_v<T>)
      file_[key] = enum_name(value);
    else
      file_[key] = value;
  }

 private:
  nlohmann::ordered_json& file_;
};

nlohmann::ordered_json differences(const LayerConfig& layer, const LayerConfig& all) {
  nlohmann::ordered_json own, common, file = nlohmann::ordered_json::object();
  for_each_member(layer, Writer(own));
  for_each_member(all, Writer(common));
  for (const auto& [key, value] : own.items())
    if (value != common[key]) file[key] = value;
  if (!(layer.rope_scaling == all.rope_scaling)) for_each_member(layer.rope_scaling, Writer(file[kScalingKey]));
  return file;
}

}  // namespace

namespace {

// A version 1 file in the words of version 2: one key for both kinds of attention biases, "swiglu" for a gated silu,
// and none of the keys that came later.
constexpr std::string_view kAdded[] = {
    "window_left", "attention_scale", "softcap",         "alibi",       "sinks",        "qk_norm",
    "qkv_bias",    "output_bias",     "rope_share",      "gated",       "norm_place",   "norm_gain_offset",
    "residual",    "residual_scale",  "embedding_scale", "logit_scale", "logit_softcap"};

nlohmann::json of_version_1(const JsonPlace& file) {
  constexpr const char* kBias = "attention_bias";
  const std::string activation = file.at("activation").string();
  nlohmann::json newer = config_json(ModelConfig{});
  for (const auto& [key, value] : newer.items()) {
    const bool added = std::find(std::begin(kAdded), std::end(kAdded), key) != std::end(kAdded);
    if (added && file.has(key)) file.fail("has the unknown key " + in_quotes(key));
    if (!added) file.at(key);  // must be there
  }
  newer.update(file.object());
  newer["gated"] = activation == "swiglu";
  if (activation == "swiglu") newer["activation"] = "silu";
  newer["qkv_bias"] = newer["output_bias"] = file.at(kBias).boolean();
  newer.erase(kBias);
  return newer;
}

ModelConfig read_version_2(const JsonPlace& file) {
  ModelConfig config;
  refuse_unknown(file, config, {kVersionKey, kTypeKey, kScalingKey, kLayersKey});
  for_each_member(config, Reader(file, Absent::error));
  if (file.has(kScalingKey)) config.rope_scaling = read_scaling(file.at(kScalingKey));
  if (file.has(kLayersKey))
    for (const JsonPlace& place : file.at(kLayersKey).list()) config.layers.push_back(read_layer(place, config));
  try {
    return config.resolved();
  } catch (const std::invalid_argument& error) {
    file.fail(error.what());
  }
}

}  // namespace

ModelConfig read_config_json(const JsonPlace& file) {
  if (file.at(kTypeKey).string() != kType)
    file.at(kTypeKey).fail("expected qkv, gpt2 or llama; found " + in_quotes(file.at(kTypeKey).string()));
  const JsonPlace version = file.at(kVersionKey);
  const std::int64_t found = version.integer(0, 1 << 30);
  if (found < 1 || found > kFormatVersion)
    version.fail("this program reads versions 1 to " + std::to_string(kFormatVersion) + "; found " +
                 std::to_string(found));
  if (found == kFormatVersion) return read_version_2(file);
  const nlohmann::json newer = of_version_1(file);
  return read_version_2(file.with(newer));
}

nlohmann::ordered_json config_json(const ModelConfig& config) {
  nlohmann::ordered_json file;
  file[kVersionKey] = kFormatVersion;
  file[kTypeKey] = kType;
  const ModelConfig whole = config.resolved();
  for_each_member(whole, Writer(file));
  if (!(whole.rope_scaling == RopeScaling{})) for_each_member(whole.rope_scaling, Writer(file[kScalingKey]));
  for (const LayerConfig& layer : whole.layers) file[kLayersKey].push_back(differences(layer, whole));
  return file;
}

void write_config_json(const std::string& path, const ModelConfig& config) {
  replace_file(path, config_json(config).dump(2) + "\n");
}

}  // namespace qkv
