// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <stdexcept>

#include "formats/gguf_scores.h"
#include "formats/gguf_splits.h"
#include "formats/gguf_tokenizer.h"
#include "formats/in_quotes.h"
#include "qkv/model_file.h"
#include "text/byte_level.h"

namespace qkv {
namespace {

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kUnused = 5, kByte = 6;  // token types

// Without merges the pre-tokenizer has no effect.
const GgufSplit* split_of(const TokenizerData& data) {
  return data.merges.empty() && !data.ignore_merges ? gguf_split("gpt-2")
                                                    : gguf_split(data.patterns, data.ignore_merges);
}

bool is_scored(const TokenizerData& data) { return data.characters || !data.scores.empty(); }

// Throws std::invalid_argument that lists everything GGUF cannot store.
void check_expressible(const TokenizerData& data) {
  std::vector<std::string> list;
  if (data.longest_match) list.emplace_back("expected a byte or BPE tokenizer; found a Harris tokenizer");
  if (!data.after.empty() || data.before.size() > 1)
    list.emplace_back("GGUF can store one token before a text and none after it; the tokenizer adds more");
  for (const AddedToken& token : data.added)
    if (token.single_word || token.lstrip || token.rstrip)
      list.push_back("GGUF cannot store single_word, lstrip or rstrip of an added token, found for " +
                     in_quotes(token.content));
  if (!is_scored(data) && !split_of(data))
    list.push_back("the pre-tokenizer has no name in GGUF; known: " + gguf_split_names());
  if (!is_scored(data) && data.add_prefix_space)
    list.emplace_back("GGUF cannot store add_prefix_space of a byte-level tokenizer");
  if (!list.empty()) throw std::invalid_argument(fmt::format("[gguf] {}", fmt::join(list, "; ")));
}

std::string with_marks(const std::string& text) {
  std::string marked;
  for (const char c : text) marked += c == ' ' ? "\xE2\x96\x81" : std::string(1, c);
  return marked;
}

// Token strings and types by id.
struct Vocabulary {
  std::vector<std::string> spellings;  // [vocab_size]
  std::vector<std::int32_t> types;     // [vocab_size]
};

Vocabulary vocabulary_of(const TokenizerData& data, std::int64_t vocab_size) {
  Vocabulary v;
  v.types.assign(data.tokens.size(), kNormal);
  const auto type = [&](std::int32_t id) -> std::int32_t& { return v.types[static_cast<std::size_t>(id)]; };
  for (const AddedToken& token : data.added) type(token.id) = token.special ? kControl : kUser;
  if (data.unknown_token >= 0) type(data.unknown_token) = kUnknown;
  for (const std::int32_t id : data.byte_ids)
    if (id >= 0) type(id) = kByte;
  for (std::size_t id = 0; id < data.tokens.size(); ++id) {
    const std::string& token = data.tokens[id];
    if (v.types[id] == kByte)
      v.spellings.push_back(fmt::format("<0x{:02X}>", static_cast<unsigned char>(token[0])));
    else if (v.types[id] != kNormal)
      v.spellings.push_back(token);
    else
      v.spellings.push_back(data.scores.empty() && !data.characters ? to_byte_level(token) : with_marks(token));
  }
  while (static_cast<std::int64_t>(v.spellings.size()) < vocab_size) {
    v.spellings.push_back("[PAD" + std::to_string(v.spellings.size()) + "]");
    v.types.push_back(kUnused);
  }
  return v;
}

void write_merges(GgufWriter& file, const TokenizerData& data, const Vocabulary& v) {
  const auto spelling = [&](std::int32_t id) { return v.spellings[static_cast<std::size_t>(id)]; };
  std::vector<std::string> merges;
  for (const Merge& merge : data.merges) merges.push_back(spelling(merge.left) + " " + spelling(merge.right));
  file.strings("tokenizer.ggml.merges", merges);
}

void write_id(GgufWriter& file, const std::string& name, std::int32_t id) {
  if (id >= 0) file.u32("tokenizer.ggml." + name + "_token_id", static_cast<std::uint32_t>(id));
}

}  // namespace

void write_gguf_tokenizer(GgufWriter& file, const TokenizerData& data, std::int64_t vocab_size,
                          const TextFacts& facts) {
  const std::vector<std::int32_t>& end_tokens = facts.end_tokens;
  check_expressible(data);
  const Vocabulary v = vocabulary_of(data, vocab_size);
  const bool scored = is_scored(data);
  file.string("tokenizer.ggml.model", scored ? "llama" : "gpt2");
  file.string("tokenizer.ggml.pre", scored ? "default" : split_of(data)->name);
  file.strings("tokenizer.ggml.tokens", v.spellings);
  if (scored) {
    std::vector<float> scores = data.characters ? scores_of_merges(data) : data.scores;
    scores.resize(v.spellings.size(), -1000.0f);
    file.f32s("tokenizer.ggml.scores", scores);
  }
  file.i32s("tokenizer.ggml.token_type", v.types);
  if (!scored) write_merges(file, data, v);
  write_id(file, "bos", data.begin_token >= 0 ? data.begin_token : facts.named.begin);
  if (end_tokens.empty()) write_id(file, "eos", data.end_token);
  constexpr std::array<const char*, gguf_end_tokens> kEnds = {"eos", "eot", "eom"};
  for (std::size_t i = 0; i < std::min(end_tokens.size(), kEnds.size()); ++i) write_id(file, kEnds[i], end_tokens[i]);
  write_id(file, "unknown", data.unknown_token >= 0 ? data.unknown_token : facts.named.unknown);
  write_id(file, "padding", facts.named.padding);
  file.boolean("tokenizer.ggml.add_bos_token", data.begin_token >= 0);
  file.boolean("tokenizer.ggml.add_space_prefix", data.add_prefix_space);
}

}  // namespace qkv
