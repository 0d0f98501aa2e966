// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face `transformers`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/families/family.h"
#include "formats/strict_json.h"
#include "qkv/model_file.h"

namespace qkv {

// Maps the keys of config.json to configuration members. The same calls read and write, so that a family names each key
// once (families/family.h).
class HfKeys {
 public:
  explicit HfKeys(const JsonPlace& file) : from_(&file) {}
  explicit HfKeys(nlohmann::ordered_json& file) : to_(&file) {}

  bool reads() const noexcept { return from_ != nullptr; }
  const JsonPlace& file() const { return *from_; }          // only when reading
  nlohmann::ordered_json& written() const { return *to_; }  // only when writing

  void size(const char* key, std::int64_t& member);  // required
  // `otherwise`: default if the key is absent or null. Always written.
  void size(const char* key, std::int64_t& member, std::int64_t otherwise);
  void number(const char* key, double& member, double otherwise);
  void flag(const char* key, bool& member, bool otherwise);
  // The first word is the default; if several words map to one value, the first is written.
  void word(const char* key, Activation& member, std::initializer_list<std::pair<const char*, Activation>> words);
  // If present, the key must have the value that does not change the computation; not written.
  void only(const char* key, bool value);
  void only(const char* key, double value);
  // Written for other programs, ignored on reading.
  template <class T>
  void note(const char* key, const T& value) {
    if (to_) (*to_)[key] = value;
  }

 private:
  const JsonPlace* from_ = nullptr;
  nlohmann::ordered_json* to_ = nullptr;
};

// The resolved configuration. Every key that affects the computation is honoured or rejected by name (qkv::FileError);
// keys for training or other programs are ignored.
ModelConfig read_hf_config(const JsonPlace& file, const Family& family);

// `eos_token_id` of config.json or generation_config.json: a number, a list of them, null or absent.
std::vector<std::int32_t> read_hf_end_tokens(const JsonPlace& file);

// The family to write a configuration as. Throws std::invalid_argument that lists every unsupported member.
const Family& hf_family_of(const ModelConfig& config);

// config.json as `transformers` reads it (version 4 and later). dtype: "float32", "float16" or "bfloat16".
std::string hf_config_text(const Family& family, const ModelConfig& config, const std::string& dtype,
                           const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);
std::string hf_generation_config_text(const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);

}  // namespace qkv
