// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_config.h"

#include <algorithm>
#include <limits>
#include <set>
#include <stdexcept>

#include "formats/in_quotes.h"
#include "qkv/error.h"
#include "qkv/model_members.h"

namespace qkv {
namespace {

constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
constexpr std::string_view kArchitecture = "general.architecture";
constexpr std::string_view kTokens = "tokenizer.ggml.tokens";

// Resolved, except that the vocabulary size is given.
ModelConfig read_members(const Gguf& file, const Family& family, std::int64_t vocab_size) {
  ModelConfig config = family.base();
  config.vocab_size = vocab_size;
  config.tied_head = file.find_tensor("output.weight") == nullptr;
  GgufKeys keys(file, family);
  keys.ignore("tensor_data_layout");  // describes the file that was converted
  if (const std::string key = keys.full("vocab_size"); file.has(key) && file.integer(key, 1, kMax) != config.vocab_size)
    file.fail_key(key, "must be the number of tokens, " + std::to_string(config.vocab_size));
  family.gguf(keys, config);
  keys.refuse_others();
  return config.resolved();
}

// Numbers rounded to f32 as GGUF stores them, and rotary frequencies as divisors, whatever form the configuration has.
LayerConfig as_stored(LayerConfig c) {
  for_each_member(c, [](const char*, auto& member) {
    if constexpr (std::is_same_v<decltype(member), double&>) member = static_cast<float>(member);
  });
  if (c.rope_scaling == RopeScaling{}) return c;
  const double attention_factor = c.rope_scaling.attention_factor;
  const std::vector<double> factors = rotary_divisors(c);
  c.rope_scaling = {};
  c.rope_scaling.attention_factor = static_cast<float>(attention_factor);
  for (const double factor : factors) c.rope_scaling.frequency_factors.push_back(static_cast<float>(factor));
  return c;
}

ModelConfig as_stored(ModelConfig c) {
  for_each_member(c, [](const char*, auto& member) {
    if constexpr (std::is_same_v<decltype(member), double&>) member = static_cast<float>(member);
  });
  static_cast<LayerConfig&>(c) = as_stored(static_cast<const LayerConfig&>(c));
  for (LayerConfig& layer : c.layers) layer = as_stored(layer);
  return c;
}

}  // namespace

GgufKeys::GgufKeys(const Gguf& file, const Family& family)
    : from_(&file), prefix_(std::string(family.gguf_type) + ".") {}
GgufKeys::GgufKeys(GgufWriter& file, const Family& family) : to_(&file), prefix_(std::string(family.gguf_type) + ".") {}

std::string GgufKeys::full(const std::string& name) { return known_.emplace_back(prefix_ + name); }

void GgufKeys::size(const std::string& name, std::int64_t& member) {
  const std::string key = full(name);
  if (reads())
    member = from_->integer(key, 1, kMax);
  else
    to_->u32(key, static_cast<std::uint32_t>(member));
}

void GgufKeys::size(const std::string& name, std::int64_t& member, std::int64_t otherwise) {
  if (reads() && !from_->has(full(name)))
    member = otherwise;
  else
    size(name, member);
}

void GgufKeys::positive(const std::string& name, double& member) {
  const std::string key = full(name);
  if (!reads()) return to_->f32(key, static_cast<float>(member));
  member = from_->number(key);
  if (!(member > 0)) from_->fail_key(key, "must be above 0; found " + std::to_string(member));
}

void GgufKeys::positive(const std::string& name, double& member, double otherwise) {
  if (reads() && !from_->has(full(name)))
    member = otherwise;
  else
    positive(name, member);
}

void GgufKeys::by_tensors(bool& member, std::initializer_list<const char*> tensors) {
  if (reads())
    member = std::any_of(tensors.begin(), tensors.end(),
                         [&](const char* name) { return from_->find_tensor(name) != nullptr; });
}

void GgufKeys::only(const std::string& name, std::int64_t value) {
  const std::string key = full(name);
  if (reads() && from_->has(key)) from_->integer(key, value, value);
}

void GgufKeys::refuse_others() const {
  for (const GgufKey& key : from_->keys())
    if (key.name.starts_with(prefix_) && std::find(known_.begin(), known_.end(), key.name) == known_.end())
      from_->fail_key(key.name, "is not supported");
}

bool gguf_holds_model(const Gguf& file) noexcept {
  const GgufKey* key = file.find_key(kArchitecture);
  if (!key || key->type != GgufType::string) return false;
  const std::string_view type(reinterpret_cast<const char*>(key->bytes.data()), key->bytes.size());
  return find_family(FileFormat::gguf, type) &&
         std::any_of(file.keys().begin(), file.keys().end(), [&](const GgufKey& other) {
           return other.name.starts_with(type) && other.name.substr(type.size()).starts_with('.');
         });
}

const Family& read_gguf_family(const Gguf& file) {
  const std::string_view type = file.string(kArchitecture);
  if (const Family* family = find_family(FileFormat::gguf, type)) return *family;
  file.fail_key(kArchitecture,
                "supported architectures are " + known_families(FileFormat::gguf) + "; found " + in_quotes(type));
}

ModelConfig read_gguf_config(const Gguf& file, const Family& family) {
  const GgufKey* tokens = file.find_key(kTokens);
  if (!tokens || tokens->type != GgufType::array) file.strings(kTokens);  // throws
  if (tokens->count < 1 || tokens->count > static_cast<std::uint64_t>(kMax))
    file.fail_key(kTokens, "contains no tokens");
  try {
    return read_members(file, family, static_cast<std::int64_t>(tokens->count));
  } catch (const std::invalid_argument& error) {
    throw FileError(file.path(), error.what());
  }
}

const Family& gguf_family_of(const ModelConfig& config) {
  const ModelConfig c = config.resolved();
  return fitting_family(FileFormat::gguf, as_stored(c), [&](const Family& family) {
    std::vector<ParameterInfo> infos = parameter_infos(c);
    std::erase_if(infos, [&](const auto& info) { return tensor_name(family, FileFormat::gguf, info.role).empty(); });
    GgufWriter writer;
    write_gguf_config(writer, family, c);
    std::set<std::string> names;  // the presence of a tensor is information
    for (const TensorPlace& place : gguf_places(family, c, infos))
      if (names.insert(place.name).second)
        writer.tensor(place.name, {1}, DType::f32, [](std::int64_t, float* to) { *to = 0; });
    const std::string bytes = writer.bytes();
    return as_stored(read_members(Gguf("a file", std::as_bytes(std::span(bytes))), family, c.vocab_size));
  });
}

void write_gguf_config(GgufWriter& file, const Family& family, const ModelConfig& config) {
  ModelConfig c = config.resolved();
  file.string(kArchitecture, std::string(family.gguf_type));
  GgufKeys keys(file, family);
  family.gguf(keys, c);
}

std::vector<TensorPlace> gguf_places(const Family& family, const ModelConfig& config,
                                     const std::vector<ParameterInfo>& infos) {
  return tensor_places(family, FileFormat::gguf, config, infos, [&](std::int64_t) { return family.gguf_joined_qkv; });
}

}  // namespace qkv
