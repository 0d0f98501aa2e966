// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "formats/gguf_splits.h"
#include "formats/gguf_tokenizer.h"
#include "formats/in_quotes.h"
#include "qkv/chat_file.h"
#include "text/byte_level.h"
#include "text/scored_encoder.h"

namespace qkv {
namespace {

constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
constexpr std::string_view kScores = "tokenizer.ggml.scores";
constexpr std::string_view kMerges = "tokenizer.ggml.merges";
constexpr std::string_view kModel = "tokenizer.ggml.model";
constexpr std::string_view kPre = "tokenizer.ggml.pre";
constexpr std::int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kByte = 6;  // token types

std::string item(std::size_t i, const std::string& reason) { return "item " + std::to_string(i) + ": " + reason; }

class TokenizerReader {
 public:
  explicit TokenizerReader(const Gguf& file) : file_(file) {}

  TokenizerData read() {
    const std::string_view model = file_.string(kModel);
    if (model != "gpt2" && model != "llama")
      file_.fail_key(kModel, "expected the tokenizer gpt2 or llama; found " + in_quotes(model));
    spellings_ = file_.strings(kTokens);
    if (spellings_.empty() || spellings_.size() > std::size_t{1} << 30)
      file_.fail_key(kTokens, "expected 1 to 2^30 tokens; found " + std::to_string(spellings_.size()));
    read_types();
    check_ids();
    model == "gpt2" ? read_bytes() : read_scored();
    read_added();
    return std::move(data_);
  }

 private:
  void read_types() {
    types_.assign(spellings_.size(), kNormal);
    if (!file_.has(kTypes)) return;
    types_ = file_.integers(kTypes);
    if (types_.size() != spellings_.size())
      file_.fail_key(kTypes, "expected one for each of the " + std::to_string(spellings_.size()) + " tokens; found " +
                                 std::to_string(types_.size()));
    for (std::size_t i = 0; i < types_.size(); ++i)
      if (types_[i] < kNormal || types_[i] > kByte)
        file_.fail_key(kTypes, item(i, "expected a type from 1 to 6; found " + std::to_string(types_[i])));
  }

  // Every key that names a token must name an existing one.
  void check_ids() const {
    for (const GgufKey& key : file_.keys())
      if (key.name.starts_with("tokenizer.ggml.") && key.name.ends_with("_token_id"))
        file_.integer(key.name, 0, static_cast<std::int64_t>(spellings_.size()) - 1);
  }

  std::int32_t id(std::string_view key, std::int32_t otherwise) const {
    if (file_.has(key))
      return static_cast<std::int32_t>(file_.integer(key, 0, std::numeric_limits<std::int32_t>::max()));
    if (otherwise >= static_cast<std::int32_t>(spellings_.size()))
      file_.fail_key(key, "is missing, and the default does not exist: token " + std::to_string(otherwise));
    return otherwise;
  }

  void read_ends(bool add_bos, std::int32_t bos, std::int32_t eos) {
    data_.end_token = id("tokenizer.ggml.eos_token_id", eos);
    if (file_.has("tokenizer.ggml.add_bos_token")) add_bos = file_.boolean("tokenizer.ggml.add_bos_token");
    bos = id("tokenizer.ggml.bos_token_id", bos);
    if (add_bos && bos < 0) file_.fail_key("tokenizer.ggml.bos_token_id", "is missing, but add_bos_token requires it");
    if (add_bos) data_.begin_token = bos;
    if (file_.has("tokenizer.ggml.add_eos_token") && file_.boolean("tokenizer.ggml.add_eos_token"))
      file_.fail_key("tokenizer.ggml.add_eos_token", "true is not supported");
  }

  void read_bytes() {
    const std::string_view name = file_.string(kPre);
    const GgufSplit* split = gguf_split(name);
    if (!split) file_.fail_key(kPre, "expected one of " + gguf_split_names() + "; found " + in_quotes(name));
    data_.patterns = split->patterns;
    data_.ignore_merges = split->ignore_merges;
    data_.drop_unknown_bytes = true;  // as in llama.cpp; SmolLM2's vocabulary lacks tokens for some control characters
    for (std::size_t i = 0; i < spellings_.size(); ++i) {
      if (types_[i] == kByte) file_.fail_key(kTypes, item(i, "a byte-level tokenizer has no byte tokens"));
      std::optional<std::string> bytes;
      if (!is_added(types_[i])) bytes = from_byte_level(spellings_[i]);
      data_.tokens.push_back(bytes.value_or(std::string(spellings_[i])));
    }
    read_merges();
    read_ends(split->add_bos, -1, -1);
  }

  void read_merges() {
    std::unordered_map<std::string_view, std::int32_t> ids;
    for (std::size_t i = 0; i < spellings_.size(); ++i) ids.emplace(spellings_[i], static_cast<std::int32_t>(i));
    const std::vector<std::string_view> merges = file_.strings(kMerges);
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::size_t space = merges[i].find(' ', 1);
      if (space == std::string_view::npos)
        file_.fail_key(kMerges, item(i, "must be two tokens separated by a space; found " + in_quotes(merges[i])));
      const auto find = [&](std::string_view spelling) {
        const auto found = ids.find(spelling);
        if (found == ids.end()) file_.fail_key(kMerges, item(i, in_quotes(spelling) + " is not a token"));
        return found->second;
      };
      const std::string_view left = merges[i].substr(0, space), right = merges[i].substr(space + 1);
      data_.merges.push_back({find(left), find(right), find(std::string(left).append(right))});
    }
  }

  void read_scored() {
    data_.scores = file_.floats(kScores);
    if (data_.scores.size() != spellings_.size())
      file_.fail_key(kScores, "expected one for each of the " + std::to_string(spellings_.size()) + " tokens; found " +
                                  std::to_string(data_.scores.size()));
    for (std::size_t i = 0; i < data_.scores.size(); ++i)
      if (!std::isfinite(data_.scores[i])) file_.fail_key(kScores, item(i, "is not finite"));
    data_.byte_ids.assign(256, -1);
    for (std::size_t i = 0; i < spellings_.size(); ++i) {
      if (types_[i] != kByte) {
        data_.tokens.push_back(is_added(types_[i]) ? std::string(spellings_[i]) : with_spaces(spellings_[i]));
        continue;
      }
      const unsigned byte = byte_of(i);
      if (data_.byte_ids[byte] >= 0) file_.fail_key(kTokens, item(i, in_quotes(spellings_[i]) + " occurs twice"));
      data_.byte_ids[byte] = static_cast<std::int32_t>(i);
      data_.tokens.emplace_back(1, static_cast<char>(byte));
    }
    data_.add_prefix_space =
        !file_.has("tokenizer.ggml.add_space_prefix") || file_.boolean("tokenizer.ggml.add_space_prefix");
    data_.unknown_token = id("tokenizer.ggml.unknown_token_id", 0);
    read_ends(true, 1, 2);
  }

  // Parses exactly "<0x4F>": two hexadecimal digits.
  unsigned byte_of(std::size_t i) const {
    const std::string_view text = spellings_[i];
    unsigned byte = 0;
    const char* digits = text.data() + 3;
    const bool framed = text.size() == 6 && text.starts_with("<0x") && text.ends_with('>');
    if (!framed || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      file_.fail_key(kTokens, item(i, "a byte token must be <0x00> to <0xFF>; found " + in_quotes(text)));
    return byte;
  }

  static bool is_added(std::int64_t type) { return type == kUnknown || type == kControl || type == kUser; }

  void read_added() {
    for (std::size_t i = 0; i < types_.size(); ++i) {
      if (!is_added(types_[i])) continue;
      AddedToken token;
      token.id = static_cast<std::int32_t>(i);
      token.content = spellings_[i];
      token.special = types_[i] != kUser;
      data_.added.push_back(token);
    }
  }

  const Gguf& file_;
  std::vector<std::string_view> spellings_;  // [tokens]
  std::vector<std::int64_t> types_;          // [tokens]
  TokenizerData data_;
};

}  // namespace

TokenizerData read_gguf_tokenizer(const Gguf& file) { return TokenizerReader(file).read(); }

std::string read_gguf_chat_template(const Gguf& file) {
  constexpr std::string_view kTemplate = "tokenizer.chat_template";
  if (!file.has(kTemplate)) return "";
  const std::string_view text = file.string(kTemplate);
  if (text.size() > largest_chat_template)
    file.fail_key(kTemplate, "expected a template of at most " + std::to_string(largest_chat_template) +
                                 " bytes; found " + std::to_string(text.size()));
  return std::string(text);
}

}  // namespace qkv
