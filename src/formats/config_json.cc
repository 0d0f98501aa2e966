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

class Reader {
 public:
  explicit Reader(const JsonPlace& file) : file_(file) {}

  void operator()(const char* key, std::int64_t& value) const {
    value = file_.at(key).integer(0, std::int64_t{1} << 40);
  }
  void operator()(const char* key, bool& value) const { value = file_.at(key).boolean(); }
  void operator()(const char* key, double& value) const { value = file_.at(key).number(); }
  void operator()(const char* key, std::vector<double>& value) const {
    for (const JsonPlace& number : file_.at(key).list()) value.push_back(number.number());
  }
  void operator()(const char* key, Norm& value) const { word(key, kNormNames, value); }
  void operator()(const char* key, Activation& value) const { word(key, kActivationNames, value); }
  void operator()(const char* key, Positions& value) const { word(key, kPositionsNames, value); }

 private:
  template <std::size_t kCount, class E>
  void word(const char* key, const std::array<std::string_view, kCount>& words, E& value) const {
    const JsonPlace place = file_.at(key);
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
  for_each_member(scaling, Reader(place));
  return scaling;
}

class Writer {
 public:
  explicit Writer(nlohmann::ordered_json& file) : file_(file) {}

  template <class T>
  void operator()(const char* key, const T& value) const {
    file_[key] = value;
  }
  void operator()(const char* key, Norm value) const { word(key, kNormNames, value); }
  void operator()(const char* key, Activation value) const { word(key, kActivationNames, value); }
  void operator()(const char* key, Positions value) const { word(key, kPositionsNames, value); }

 private:
  template <std::size_t kCount, class E>
  void word(const char* key, const std::array<std::string_view, kCount>& words, E value) const {
    file_[key] = words[static_cast<std::size_t>(value)];
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
  refuse_unknown(file, config, {kVersionKey, kTypeKey, kScalingKey});
  for_each_member(config, Reader(file));
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
  for_each_member(whole, Writer(file));
  if (!(whole.rope_scaling == RopeScaling{})) for_each_member(whole.rope_scaling, Writer(file[kScalingKey]));
  return file;
}

void write_config_json(const std::string& path, const ModelConfig& config) {
  replace_file(path, config_json(config).dump(2) + "\n");
}

}  // namespace qkv
