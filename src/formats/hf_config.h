// SPDX-License-Identifier: Apache-2.0
// config.json of Hugging Face's `transformers`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/families/family.h"
#include "formats/strict_json.h"
#include "qkv/model_file.h"

namespace qkv {

// The keys of a config.json and the members they are about. The same calls read a file and write one, so that a family
// names each key once (families/family.h).
class HfKeys {
 public:
  explicit HfKeys(const JsonPlace& file) : from_(&file) {}
  explicit HfKeys(nlohmann::ordered_json& file) : to_(&file) {}

  bool reads() const noexcept { return from_ != nullptr; }
  const JsonPlace& file() const { return *from_; }          // where it reads
  nlohmann::ordered_json& written() const { return *to_; }  // where it writes

  void size(const char* key, std::int64_t& member);  // must be there
  // `otherwise`: if the key is absent or null. Written whatever the member is.
  void size(const char* key, std::int64_t& member, std::int64_t otherwise);
  void number(const char* key, double& member, double otherwise);
  void flag(const char* key, bool& member, bool otherwise);
  // The first word is meant if the key is absent; of several for one value the first is written.
  void word(const char* key, Activation& member, std::initializer_list<std::pair<const char*, Activation>> words);
  // A key that would change the numbers may be there with the one value that does not; it is not written.
  void only(const char* key, bool value);
  void only(const char* key, double value);
  // Written for other programs, ignored when reading.
  template <class T>
  void note(const char* key, const T& value) {
    if (to_) (*to_)[key] = value;
  }

 private:
  const JsonPlace* from_ = nullptr;
  nlohmann::ordered_json* to_ = nullptr;
};

// The resolved configuration. Every key that changes the numbers is honoured or refused by name (qkv::FileError); what
// is only about training or other programs is ignored.
ModelConfig read_hf_config(const JsonPlace& file, const Family& family);

// `eos_token_id` of config.json or generation_config.json: a number, a list of them, null or absent.
std::vector<std::int32_t> read_hf_end_tokens(const JsonPlace& file);

// The family as which a configuration is written. Throws std::invalid_argument that names every member that does not
// fit.
const Family& hf_family_of(const ModelConfig& config);

// config.json as `transformers` reads it (version 4 and later). dtype: "float32", "float16" or "bfloat16".
std::string hf_config_text(const Family& family, const ModelConfig& config, const std::string& dtype,
                           const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);
std::string hf_generation_config_text(const std::vector<std::int32_t>& end_tokens, const NamedTokens& named);

}  // namespace qkv
