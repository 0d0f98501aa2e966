// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "formats/tokenizer_json.h"
#include "os/atomic_file.h"
#include "text/byte_level.h"
#include "text/splitter.h"
#include "text/tokenizer_impl.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;  // keeps the order in which keys are set

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

Json model(const TokenizerData& data) {
  std::set<std::int32_t> added;
  for (const AddedToken& token : data.added) added.insert(token.id);
  const auto spelling = [&](std::int32_t id) {
    const std::string& token = data.tokens[static_cast<std::size_t>(id)];
    return added.contains(id) ? token : to_byte_level(token);
  };
  Json vocabulary = Json::object(), merges = Json::array();
  // Set at the end of the list, not looked up first: an ordered object finds keys one by one.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (std::size_t id = 0; id < data.tokens.size(); ++id)
    entries.Container::emplace_back(spelling(static_cast<std::int32_t>(id)), id);
  for (const Merge& merge : data.merges) merges.push_back(spelling(merge.left) + " " + spelling(merge.right));
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", nullptr},
          {"end_of_word_suffix", nullptr},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", data.ignore_merges},
          {"vocab", std::move(vocabulary)},
          {"merges", std::move(merges)}};
}

}  // namespace

void write_tokenizer_json(const std::string& path, const TokenizerData& data) {
  if (!data.scores.empty())
    throw std::invalid_argument("[tokenizer] tokenizer.json expected byte-level BPE; found a tokenizer of scores");
  const Json file = {{"version", "1.0"},          {"truncation", nullptr},
                     {"padding", nullptr},        {"added_tokens", added_tokens(data)},
                     {"normalizer", nullptr},     {"pre_tokenizer", pre_tokenizer(data)},
                     {"post_processor", nullptr}, {"decoder", byte_level(true, true)},
                     {"model", model(data)}};
  replace_file(path, file.dump(2) + "\n");
}

void Tokenizer::save(const std::string& path) const { write_tokenizer_json(path, impl_->data); }

}  // namespace qkv
