// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "formats/tokenizer_characters.h"
#include "formats/tokenizer_json.h"
#include "os/atomic_file.h"
#include "text/byte_level.h"
#include "text/splitter.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;  // preserves insertion order

Json byte_level(bool add_prefix_space, bool use_regex) {
  return {
      {"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json pre_tokenizer(const TokenizerData& data) {
  const bool gpt2 = !data.patterns.empty() && data.patterns.back() == kGpt2Pattern;
  const std::size_t splits = data.patterns.size() - (gpt2 ? 1 : 0);
  const Json last = byte_level(data.add_prefix_space, gpt2);
  if (splits == 0) return last;
  Json stages = Json::array();
  for (std::size_t i = 0; i < splits; ++i)
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", data.patterns[i]}}}, {"behavior", "Isolated"}, {"invert", false}});
  stages.push_back(last);
  return {{"type", "Sequence"}, {"pretokenizers", stages}};
}

Json added_tokens(const TokenizerData& data) {
  Json list = Json::array();
  for (const AddedToken& token : data.added)
    list.push_back({{"id", token.id},
                    {"content", token.content},
                    {"single_word", token.single_word},
                    {"lstrip", token.lstrip},
                    {"rstrip", token.rstrip},
                    {"normalized", token.normalized},
                    {"special", token.special}});
  return list;
}

Json spelt(const TokenizerData& data) {
  Json list = Json::array();
  for (const std::string& token : data.tokens) list.push_back(to_byte_level(token));
  return list;
}

// The spelling of a token in the file.
class Spelling {
 public:
  explicit Spelling(const TokenizerData& data) : data_(data) {
    for (const AddedToken& token : data.added) added_.emplace(token.id, token.in_model);
    for (std::size_t byte = 0; data.characters && byte < data.byte_ids.size(); ++byte)
      bytes_.emplace(data.byte_ids[byte], static_cast<unsigned char>(byte));
  }

  bool only_in_added_tokens(std::int32_t id) const {
    const auto found = added_.find(id);
    return found != added_.end() && !found->second;
  }

  std::string operator()(std::int32_t id) const {
    const std::string& token = data_.tokens[static_cast<std::size_t>(id)];
    if (const auto byte = bytes_.find(id); byte != bytes_.end()) return byte_token(byte->second);
    if (added_.contains(id)) return token;
    return data_.characters ? with_space_marks(token) : to_byte_level(token);
  }

 private:
  const TokenizerData& data_;
  std::map<std::int32_t, bool> added_;           // id -> in the model
  std::map<std::int32_t, unsigned char> bytes_;  // character-level models: id -> byte
};

// Spellings of all tokens by id. Added tokens after all others are written only in added_tokens, unless the model has
// them too.
Json byte_pairs(const TokenizerData& data) {
  const Spelling spelling(data);
  std::size_t size = data.tokens.size();
  while (size > 0 && spelling.only_in_added_tokens(static_cast<std::int32_t>(size - 1))) --size;
  Json vocabulary = Json::object(), merges = Json::array();
  // Appended without a lookup: an ordered object finds keys by linear search.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < size; ++id)
    if (!data.tokens[id].empty()) entries.Container::emplace_back(spelling(static_cast<std::int32_t>(id)), id);
  for (const Merge& merge : data.merges) merges.push_back(spelling(merge.left) + " " + spelling(merge.right));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", data.unknown_token < 0 ? Json(nullptr) : Json(spelling(data.unknown_token))},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", data.fuse_unknown},
          {"byte_fallback", data.characters},
          {"ignore_merges", data.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

Json model(const TokenizerData& data) {
  if (data.longest_match) return {{"type", "Harris"}, {"tokens", spelt(data)}};
  if (data.scores.empty()) return byte_pairs(data);
  return {{"type", "Scored"},          {"tokens", spelt(data)},         {"scores", data.scores},
          {"byte_ids", data.byte_ids}, {"unknown", data.unknown_token}, {"add_prefix_space", data.add_prefix_space}};
}

Json normalizer(const TokenizerData& data) {
  constexpr const char* kNames[] = {"NFC", "NFD", "NFKC", "NFKD"};
  if (data.normalisers.empty()) return nullptr;
  Json list = Json::array();
  for (const Normaliser form : data.normalisers) list.push_back({{"type", kNames[static_cast<std::size_t>(form)]}});
  return list.size() == 1 ? list[0] : Json{{"type", "Sequence"}, {"normalizers", list}};
}

Json post_processor(const TokenizerData& data) {
  std::vector<std::int32_t> before = data.before;
  if (before.empty() && data.after.empty() && data.begin_token >= 0) before.push_back(data.begin_token);
  if (before.empty() && data.after.empty()) return nullptr;
  const Spelling spelling(data);
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto add = [&](std::int32_t id) {
    const std::string content = spelling(id);
    const Json token = {{"SpecialToken", {{"id", content}, {"type_id", 0}}}};
    single.push_back(token);
    pair.push_back(token);
    tokens[content] = {{"id", content}, {"ids", {id}}, {"tokens", {content}}};
  };
  for (const std::int32_t id : before) add(id);
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back(single.back());
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  for (const std::int32_t id : data.after) add(id);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

}  // namespace

std::string tokenizer_json_text(const TokenizerData& data) {
  for (const AddedToken& token : data.added)
    if (!is_utf8(token.content))
      throw std::invalid_argument("[tokenizer] expected added tokens in UTF-8, as JSON requires; found id " +
                                  std::to_string(token.id));
  const bool own = data.longest_match || !data.scores.empty();
  const Json file = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added_tokens(data)},
                     {"normalizer", data.characters ? character_normalizer(data) : normalizer(data)},
                     {"pre_tokenizer", own               ? Json(nullptr)
                                       : data.characters ? character_pre_tokenizer(data)
                                                         : pre_tokenizer(data)},
                     {"post_processor", post_processor(data)},
                     {"decoder", own               ? Json(nullptr)
                                 : data.characters ? character_decoder(data)
                                                   : byte_level(true, true)},
                     {"model", model(data)}};
  return file.dump(2) + "\n";
}

void write_tokenizer_json(const std::string& path, const TokenizerData& data) {
  replace_file(path, tokenizer_json_text(data));
}

std::string Tokenizer::json() const { return tokenizer_json_text(impl_->data); }
void Tokenizer::save(const std::string& path) const { write_tokenizer_json(path, impl_->data); }

}  // namespace qkv
