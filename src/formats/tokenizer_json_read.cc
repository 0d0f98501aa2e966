// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <memory>
#include <stdexcept>
#include <unordered_map>

#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "formats/tokenizer_characters.h"
#include "formats/tokenizer_json.h"
#include "qkv/error.h"
#include "text/byte_level.h"
#include "text/scored_encoder.h"
#include "text/splitter.h"
#include "text/tokenizer_impl.h"

namespace qkv {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 28;
constexpr std::int64_t kLargestId = std::int64_t{1} << 30;

constexpr std::pair<const char*, Normaliser> kNormalisers[] = {
    {"NFC", Normaliser::nfc}, {"NFD", Normaliser::nfd}, {"NFKC", Normaliser::nfkc}, {"NFKD", Normaliser::nfkd}};

// Escapes a text as a regular expression that matches it.
std::string escaped(const std::string& text) {
  std::string expression;
  for (const char c : text) {
    const bool ascii_sign = static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c));
    if (ascii_sign) expression += '\\';
    expression += c;
  }
  return expression;
}

void read_split(const JsonPlace& place, TokenizerData& data) {
  place.only({"type", "pattern", "behavior", "invert"});
  const JsonPlace pattern = place.at("pattern");
  pattern.only({"Regex", "String"});
  if (place.at("behavior").string() != "Isolated") place.at("behavior").fail("only Isolated is supported");
  if (place.boolean_or("invert", false)) place.at("invert").fail("is not supported");
  data.patterns.push_back(pattern.has("Regex") ? pattern.at("Regex").string() : escaped(pattern.at("String").string()));
}

// Returns whether the stage outputs bytes.
bool read_pre_tokenizer(const JsonPlace& place, TokenizerData& data) {
  if (place.is_null()) return false;
  const std::string& type = place.at("type").string();
  if (type == "Sequence") {
    place.only({"type", "pretokenizers"});
    bool bytes = false;
    for (const JsonPlace& stage : place.at("pretokenizers").list()) {
      if (bytes) stage.fail("ByteLevel must be the last stage");
      bytes = read_pre_tokenizer(stage, data);
    }
    return bytes;
  }
  if (type == "ByteLevel") {
    place.only({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    data.add_prefix_space = place.at("add_prefix_space").boolean();
    if (data.add_prefix_space && !data.patterns.empty())
      place.at("add_prefix_space").fail("is supported only if ByteLevel is the only stage");
    if (place.boolean_or("use_regex", true)) data.patterns.emplace_back(kGpt2Pattern);
    return true;
  }
  if (type == "Split") {
    read_split(place, data);
  } else if (type == "Digits") {
    place.only({"type", "individual_digits"});
    data.patterns.push_back(place.boolean_or("individual_digits", false) ? R"(\p{N})" : R"(\p{N}+)");
  } else {
    place.at("type").fail("the pre-tokenizer " + in_quotes(type) + " is not supported");
  }
  return false;
}

void read_normalizer(const JsonPlace& place, TokenizerData& data) {
  const std::string& type = place.at("type").string();
  if (type == "Sequence") {
    place.only({"type", "normalizers"});
    for (const JsonPlace& part : place.at("normalizers").list()) read_normalizer(part, data);
    return;
  }
  for (const auto& [name, form] : kNormalisers)
    if (type == name) return data.normalisers.push_back(form);
  place.at("type").fail("the normalizer " + in_quotes(type) + " is not supported; expected NFC, NFD, NFKC or NFKD");
}

// Tokens before and after a single text.
void read_template(const JsonPlace& place, TokenizerData& data) {
  place.only({"type", "single", "pair", "special_tokens"});
  const JsonPlace tokens = place.at("special_tokens");
  bool seen = false;
  for (const JsonPlace& piece : place.at("single").list()) {
    piece.only({"SpecialToken", "Sequence"});
    if (piece.has("Sequence")) {
      if (seen || piece.at("Sequence").at("id").string() != "A") piece.fail("expected the sequence A once");
      seen = true;
      continue;
    }
    const JsonPlace token = tokens.at(piece.at("SpecialToken").at("id").string());
    for (const JsonPlace& id : token.at("ids").list())
      (seen ? data.after : data.before)
          .push_back(static_cast<std::int32_t>(id.integer(0, static_cast<std::int64_t>(data.tokens.size()) - 1)));
  }
  if (!seen) place.at("single").fail("expected the sequence A once");
  if (data.before.size() == 1) data.begin_token = data.before[0];
}

void read_post_processor(const JsonPlace& place, TokenizerData& data) {
  const std::string& type = place.at("type").string();
  if (type == "ByteLevel") return;  // only affects offsets
  if (type == "Sequence") {
    for (const JsonPlace& part : place.at("processors").list()) read_post_processor(part, data);
  } else if (type != "TemplateProcessing") {
    place.at("type").fail("the post-processor " + in_quotes(type) +
                          " is not supported; expected TemplateProcessing or ByteLevel");
  } else if (!data.before.empty() || !data.after.empty()) {
    place.fail("expected one TemplateProcessing; found more");
  } else {
    read_template(place, data);
  }
}

void require_byte_level_decoder(const JsonPlace& place) {
  const std::string& type = place.at("type").string();
  if (type == "ByteLevel") return;
  if (type != "Sequence") place.fail("must be ByteLevel; found " + in_quotes(type));
  const std::vector<JsonPlace> parts = place.at("decoders").list();
  if (parts.size() != 1) place.fail("must be only ByteLevel; found " + std::to_string(parts.size()) + " parts");
  require_byte_level_decoder(parts[0]);
}

// Rejects unknown keys, truncation and padding.
void refuse_the_rest(const JsonPlace& file) {
  file.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer", "post_processor",
             "decoder", "model"});
  for (const char* key : {"truncation", "padding"})
    if (file.has(key)) file.at(key).fail("is not supported; found one");
}

void check_model(const JsonPlace& model) {
  model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
              "byte_fallback", "ignore_merges", "vocab", "merges"});
  if (model.has("type") && model.at("type").string() != "BPE") model.at("type").fail("only BPE is supported");
  if (model.has("dropout") && model.at("dropout").number() != 0) model.at("dropout").fail("is not supported");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (model.has(key) && !model.at(key).string().empty()) model.at(key).fail("is not supported");
  // Has no effect with byte-level BPE: the spelling of a byte without a token is not "<0xXX>".
  model.boolean_or("byte_fallback", false);
}

using Vocabulary = std::unordered_map<std::string, std::int32_t>;  // spelling in the file -> id

void read_added_tokens(const JsonPlace& file, Vocabulary& vocabulary, TokenizerData& data) {
  if (!file.has("added_tokens")) return;
  for (const JsonPlace& place : file.at("added_tokens").list()) {
    place.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
    AddedToken token;
    token.id = static_cast<std::int32_t>(place.at("id").integer(0, kLargestId));
    token.content = place.at("content").string();
    token.special = place.boolean_or("special", false);
    token.single_word = place.boolean_or("single_word", false);
    token.lstrip = place.boolean_or("lstrip", false);
    token.rstrip = place.boolean_or("rstrip", false);
    token.normalized = place.boolean_or("normalized", false);
    if (token.content.empty()) place.at("content").fail("is empty");
    if (data.characters && token.normalized)
      place.at("normalized").fail("is supported only if ByteLevel is the pre-tokenizer");
    const auto [known, is_new] = vocabulary.emplace(token.content, token.id);
    token.in_model = !is_new && !data.characters && from_byte_level(token.content) == token.content;
    if (known->second != token.id)
      place.fail(in_quotes(token.content) + " has the ids " + std::to_string(known->second) + " and " +
                 std::to_string(token.id));
    for (const AddedToken& other : data.added)
      if (other.id == token.id) place.fail("id " + std::to_string(token.id) + " occurs twice");
    if (token.content == kEndToken) data.end_token = token.id;
    data.added.push_back(token);
  }
  const auto fallback = vocabulary.find("</s>");
  for (const AddedToken& token : data.added)
    if (data.end_token < 0 && fallback != vocabulary.end() && token.id == fallback->second) data.end_token = token.id;
}

Vocabulary read_vocabulary(const JsonPlace& model) {
  const JsonPlace place = model.at("vocab");
  Vocabulary vocabulary;
  for (const auto& [spelling, id] : place.object().items())
    vocabulary.emplace(spelling, static_cast<std::int32_t>(place.at(spelling).integer(0, kLargestId)));
  return vocabulary;
}

// Ids may be unused, but not so many that a small file allocates much memory.
void fill_tokens(const JsonPlace& model, const Vocabulary& vocabulary, TokenizerData& data) {
  constexpr std::size_t kMaxLeftOut = 1 << 16;
  std::size_t size = 0;
  for (const auto& [spelling, id] : vocabulary) size = std::max(size, static_cast<std::size_t>(id) + 1);
  if (size > vocabulary.size() + kMaxLeftOut)
    model.at("vocab").fail("has " + std::to_string(vocabulary.size()) + " tokens, but one of them has id " +
                           std::to_string(size - 1));
  std::vector<const std::string*> spellings(size);
  for (const auto& [spelling, id] : vocabulary) {
    if (spellings[static_cast<std::size_t>(id)])
      model.at("vocab").fail("id " + std::to_string(id) + " belongs to two tokens");
    spellings[static_cast<std::size_t>(id)] = &spelling;
  }
  for (const std::string* spelling : spellings)
    data.tokens.push_back(!spelling         ? ""
                          : data.characters ? with_spaces(*spelling)
                                            : from_byte_level(*spelling).value_or(*spelling));
  for (const AddedToken& token : data.added) data.tokens[static_cast<std::size_t>(token.id)] = token.content;
}

// "<0x00>" to "<0xFF>": bytes of characters that have no token.
void read_byte_tokens(const JsonPlace& model, const Vocabulary& vocabulary, TokenizerData& data) {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = byte_token(static_cast<unsigned char>(byte));
    const auto found = vocabulary.find(spelling);
    if (found == vocabulary.end()) model.at("vocab").fail("has byte_fallback but no token " + in_quotes(spelling));
    data.byte_ids.push_back(found->second);
    data.tokens[static_cast<std::size_t>(found->second)] = std::string(1, static_cast<char>(byte));
  }
}

// How bytes without a token are encoded.
void read_unknown(const JsonPlace& model, const Vocabulary& vocabulary, TokenizerData& data) {
  data.fuse_unknown = model.boolean_or("fuse_unk", false);
  data.drop_unknown_bytes = !model.has("unk_token");
  if (data.drop_unknown_bytes) return;
  const std::string& unknown = model.at("unk_token").string();
  const auto found = vocabulary.find(unknown);
  if (found == vocabulary.end()) model.at("unk_token").fail(in_quotes(unknown) + " is not a token");
  data.unknown_token = found->second;
}

void read_merges(const JsonPlace& model, const Vocabulary& vocabulary, TokenizerData& data) {
  for (const JsonPlace& place : model.at("merges").list()) {
    std::string left, right;
    if (place.is_string()) {
      const std::string& both = place.string();
      const std::size_t space = both.find(' ');
      if (space == std::string::npos || both.find(' ', space + 1) != std::string::npos)
        place.fail("must be two tokens separated by a space; found " + in_quotes(both));
      left = both.substr(0, space);
      right = both.substr(space + 1);
    } else {
      const std::vector<JsonPlace> pair = place.list();
      if (pair.size() != 2) place.fail("must be a pair; found " + std::to_string(pair.size()) + " items");
      left = pair[0].string();
      right = pair[1].string();
    }
    const auto id = [&](const std::string& spelling) {
      const auto found = vocabulary.find(spelling);
      if (found == vocabulary.end()) place.fail(in_quotes(spelling) + " is not in the vocabulary");
      return found->second;
    };
    data.merges.push_back({id(left), id(right), id(left + right)});
  }
}

// qkv's own model types (docs/formats.md): Harris and Scored.
std::vector<std::string> read_own_tokens(const JsonPlace& model) {
  std::vector<std::string> tokens;
  for (const JsonPlace& token : model.at("tokens").list())
    tokens.push_back(from_byte_level(token.string()).value_or(token.string()));
  return tokens;
}

void read_own_model(const JsonPlace& file, const JsonPlace& model, bool scored, TokenizerData& data) {
  for (const char* key : {"normalizer", "pre_tokenizer", "decoder"})
    if (file.has(key)) file.at(key).fail("is not supported with this model type");
  data.tokens = read_own_tokens(model);
  const auto most = static_cast<std::int64_t>(data.tokens.size()) - 1;
  if (scored) {
    model.only({"type", "tokens", "scores", "byte_ids", "unknown", "add_prefix_space"});
    for (const JsonPlace& score : model.at("scores").list()) data.scores.push_back(static_cast<float>(score.number()));
    for (const JsonPlace& id : model.at("byte_ids").list())
      data.byte_ids.push_back(static_cast<std::int32_t>(id.integer(-1, most)));
    if (data.scores.empty() || data.byte_ids.size() != 256) model.fail("expected scores and 256 byte_ids");
    data.unknown_token = static_cast<std::int32_t>(model.at("unknown").integer(-1, most));
    data.add_prefix_space = model.at("add_prefix_space").boolean();
  } else {
    model.only({"type", "tokens"});
    data.longest_match = true;
  }
  Vocabulary vocabulary;
  read_added_tokens(file, vocabulary, data);
  for (const AddedToken& token : data.added) {
    if (token.id > most) file.at("added_tokens").fail("id " + std::to_string(token.id) + " is not a token");
    data.tokens[static_cast<std::size_t>(token.id)] = token.content;
  }
}

TokenizerData read_tokenizer(const std::string& path, const nlohmann::json& json) {
  const JsonPlace file(path, json);
  TokenizerData data;
  refuse_the_rest(file);
  const JsonPlace model = file.at("model");
  const std::string type = model.string_or("type", "BPE");
  if (type == "Harris" || type == "Scored") {
    read_own_model(file, model, type == "Scored", data);
  } else {
    check_model(model);
    if (is_of_characters(file)) {
      read_character_stages(file, data);
    } else {
      if (file.has("normalizer")) read_normalizer(file.at("normalizer"), data);
      if (!read_pre_tokenizer(file.at("pre_tokenizer"), data))
        file.at("pre_tokenizer").fail("must end with ByteLevel, or be Metaspace or null with byte_fallback");
      if (!file.has("decoder")) file.fail("has no decoder; expected ByteLevel");
      require_byte_level_decoder(file.at("decoder"));
    }
    data.ignore_merges = model.boolean_or("ignore_merges", false);
    Vocabulary vocabulary = read_vocabulary(model);
    read_added_tokens(file, vocabulary, data);
    fill_tokens(model, vocabulary, data);
    read_unknown(model, vocabulary, data);
    read_merges(model, vocabulary, data);
    if (data.characters) read_byte_tokens(model, vocabulary, data);
  }
  if (file.has("post_processor")) read_post_processor(file.at("post_processor"), data);
  return data;
}

}  // namespace

TokenizerData read_tokenizer_json(const std::string& path) {
  return read_tokenizer(path, load_json(path, kLargestFile));
}

TokenizerData parse_tokenizer_json(const std::string& path, std::string_view text) {
  return read_tokenizer(path, parse_json(path, text));
}

Tokenizer Tokenizer::from_json(const std::string& name, std::string_view text) {
  TokenizerData data = parse_tokenizer_json(name, text);
  try {
    return Tokenizer(std::make_shared<const Impl>(std::move(data)));
  } catch (const std::invalid_argument& error) {
    throw FileError(name, error.what());
  }
}

Tokenizer Tokenizer::load(const std::string& path) {
  TokenizerData data = read_tokenizer_json(path);
  try {
    return Tokenizer(std::make_shared<const Impl>(std::move(data)));
  } catch (const std::invalid_argument& error) {
    throw FileError(path, error.what());
  }
}

}  // namespace qkv
