// SPDX-License-Identifier: Apache-2.0
#include "formats/named_tokens.h"

#include <filesystem>
#include <limits>

#include "formats/strict_json.h"
#include "text/tokenizer_data.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestConfig = std::size_t{1} << 26;  // tokenizer_config.json lists every added token

struct Name {
  const char* key;
  std::int32_t NamedTokens::*id;
};
constexpr Name kNames[] = {
    {"bos_token", &NamedTokens::begin}, {"unk_token", &NamedTokens::unknown}, {"pad_token", &NamedTokens::padding}};

// "bos_token": "<s>", or an object with the text in `content`.
std::int32_t added_token(const JsonPlace& place, const Tokenizer& tokenizer) {
  const std::string& text = place.is_string() ? place.string() : place.at("content").string();
  for (const AddedToken& token : tokenizer.data().added)
    if (token.content == text) return token.id;
  return -1;
}

// "bos_token_id": 1.
std::int32_t vocabulary_token(const JsonPlace& place, std::int64_t vocab_size) {
  const std::int64_t id = place.integer(-1, std::numeric_limits<std::int32_t>::max());
  return id < vocab_size ? static_cast<std::int32_t>(id) : -1;
}

template <class Read>
void read_names(const std::string& path, const std::string& suffix, NamedTokens& named, const Read& read) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return;
  const nlohmann::json json = load_json(path, kLargestConfig);
  const JsonPlace file(path, json);
  file.object();
  for (const Name& name : kNames) {
    const std::string key = name.key + suffix;
    if (named.*name.id < 0 && file.has(key)) named.*name.id = read(file.at(key));
  }
}

}  // namespace

NamedTokens read_directory_named_tokens(const std::string& directory, const Tokenizer& tokenizer,
                                        std::int64_t vocab_size) {
  NamedTokens named;
  read_names(directory + "/tokenizer_config.json", "", named,
             [&](const JsonPlace& place) { return added_token(place, tokenizer); });
  for (const char* name : {"/generation_config.json", "/config.json"})
    read_names(directory + name, "_id", named,
               [&](const JsonPlace& place) { return vocabulary_token(place, vocab_size); });
  return named;
}

NamedTokens completed(NamedTokens named, const Tokenizer& tokenizer) {
  if (named.begin < 0) named.begin = tokenizer.begin_token();
  if (named.unknown < 0) named.unknown = tokenizer.data().unknown_token;
  return named;
}

}  // namespace qkv
