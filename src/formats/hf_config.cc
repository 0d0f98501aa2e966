// SPDX-License-Identifier: Apache-2.0
#include "formats/hf_config.h"

#include <limits>
#include <stdexcept>

#include "formats/in_quotes.h"

namespace qkv {
namespace {

constexpr std::int64_t kMax = std::int64_t{1} << 40;

// Not resolved.
ModelConfig read_members(const JsonPlace& file, const Family& family) {
  if (file.has("quantization_config")) file.at("quantization_config").fail("is not supported; found one");
  ModelConfig config = family.base();
  HfKeys keys(file);
  keys.flag("tie_word_embeddings", config.tied_head, config.tied_head);
  family.hf(keys, config);
  return config;
}

nlohmann::ordered_json one_or_list(const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return nullptr;
  return ids.size() == 1 ? nlohmann::ordered_json(ids[0]) : nlohmann::ordered_json(ids);
}

nlohmann::ordered_json id_or_null(std::int32_t id) {
  return id < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(id);
}

}  // namespace

void HfKeys::size(const char* key, std::int64_t& member) {
  if (reads()) member = from_->at(key).integer(1, kMax);
  note(key, member);
}

void HfKeys::size(const char* key, std::int64_t& member, std::int64_t otherwise) {
  if (reads()) member = from_->integer_or(key, otherwise, 1, kMax);
  note(key, member);
}

void HfKeys::number(const char* key, double& member, double otherwise) {
  if (reads()) member = from_->number_or(key, otherwise);
  note(key, member);
}

void HfKeys::flag(const char* key, bool& member, bool otherwise) {
  if (reads()) member = from_->boolean_or(key, otherwise);
  note(key, member);
}

void HfKeys::word(const char* key, Activation& member,
                  std::initializer_list<std::pair<const char*, Activation>> words) {
  std::string known;
  for (const auto& [word, value] : words) {
    if (reads() ? from_->string_or(key, words.begin()->first) == word : member == value) {
      member = value;
      return note(key, word);
    }
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  if (reads()) from_->at(key).fail("expected " + known + "; found " + in_quotes(from_->at(key).string()));
}

void HfKeys::only(const char* key, bool value) {
  if (reads() && from_->boolean_or(key, value) != value)
    from_->at(key).fail(std::string("only ") + (value ? "true" : "false") + " is supported");
}

void HfKeys::only(const char* key, double value) {
  if (reads() && from_->number_or(key, value) != value)
    from_->at(key).fail("only " + nlohmann::json(value).dump() + " is supported");
}

ModelConfig read_hf_config(const JsonPlace& file, const Family& family) {
  try {
    return read_members(file, family).resolved();
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

const Family& hf_family_of(const ModelConfig& config) {
  return fitting_family(FileFormat::hugging_face, config.resolved(), [&](const Family& family) {
    const std::string path = "config.json";
    const nlohmann::json written = nlohmann::json::parse(hf_config_text(family, config, "float32", {}, {}));
    return read_members(JsonPlace(path, written), family).resolved();
  });
}

std::string hf_config_text(const Family& family, const ModelConfig& config, const std::string& dtype,
                           const std::vector<std::int32_t>& end_tokens, const NamedTokens& named) {
  ModelConfig c = config.resolved();
  nlohmann::ordered_json file = {{"architectures", {family.hf_class}},
                                 {"model_type", family.hf_type},
                                 {"torch_dtype", dtype},
                                 {"tie_word_embeddings", c.tied_head},
                                 {"bos_token_id", id_or_null(named.begin)},
                                 {"eos_token_id", one_or_list(end_tokens)},
                                 {"pad_token_id", id_or_null(named.padding)}};
  HfKeys keys(file);
  family.hf(keys, c);
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
