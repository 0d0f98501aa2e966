// SPDX-License-Identifier: Apache-2.0
#include "formats/tokenizer_characters.h"

#include <fmt/format.h>

#include "formats/in_quotes.h"

namespace qkv {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kMark = "\xE2\x96\x81";  // U+2581

void require(const JsonPlace& place, const char* key, const std::string& wanted) {
  if (place.at(key).string() != wanted) place.at(key).fail("expected " + in_quotes(wanted));
}

// Replaces " " by the mark, or the reverse.
void check_replace(const JsonPlace& place, const std::string& from, const std::string& to) {
  place.only({"type", "pattern", "content"});
  place.at("pattern").only({"String"});
  require(place.at("pattern"), "String", from);
  require(place, "content", to);
}

// Prepend a mark and replace spaces by marks, or only the latter.
void read_normalizer(const JsonPlace& place, TokenizerData& data) {
  const std::vector<JsonPlace> stages =
      place.at("type").string() == "Sequence" ? place.at("normalizers").list() : std::vector<JsonPlace>{place};
  bool replaced = false;
  for (const JsonPlace& stage : stages) {
    const std::string& type = stage.at("type").string();
    if (type == "Prepend" && !replaced && !data.add_prefix_space) {
      stage.only({"type", "prepend"});
      require(stage, "prepend", kMark);
      data.add_prefix_space = true;
    } else if (type == "Replace" && !replaced) {
      check_replace(stage, " ", kMark);
      replaced = true;
    } else {
      stage.at("type").fail("the normalizer " + in_quotes(type) +
                            " is not supported here; expected Prepend, then Replace");
    }
  }
  if (!replaced) place.fail("expected a Replace of spaces by U+2581");
}

void read_metaspace(const JsonPlace& place, TokenizerData& data) {
  place.only({"type", "replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  require(place, "replacement", kMark);
  data.split_spaces = place.boolean_or("split", true);
  const std::string scheme =
      place.string_or("prepend_scheme", place.boolean_or("add_prefix_space", true) ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never")
    place.at("prepend_scheme").fail("expected always, first or never; found " + in_quotes(scheme));
  data.add_prefix_space = scheme != "never";
  data.space_prefix = scheme == "first" ? SpacePrefix::first_unless_there : SpacePrefix::unless_there;
}

// Bytes to text, marks to spaces, and removal of the prepended space, if any.
void check_decoder(const JsonPlace& place, bool prefixed) {
  const std::vector<JsonPlace> stages =
      place.at("type").string() == "Sequence" ? place.at("decoders").list() : std::vector<JsonPlace>{place};
  bool bytes = false, stripped = false;
  for (const JsonPlace& stage : stages) {
    const std::string& type = stage.at("type").string();
    if (type == "Replace") {
      check_replace(stage, kMark, " ");
    } else if (type == "ByteFallback") {
      bytes = true;
    } else if (type == "Strip") {
      require(stage, "content", " ");
      if (stage.at("start").integer(0, 1) != 1 || stage.at("stop").integer(0, 1) != 0)
        stage.fail("expected start 1, stop 0");
      stripped = true;
    } else if (type == "Metaspace") {
      require(stage, "replacement", kMark);
      stripped = stage.string_or("prepend_scheme", "always") != "never";
    } else if (type != "Fuse") {
      stage.at("type").fail("the decoder " + in_quotes(type) +
                            " is not supported here; expected Replace, ByteFallback, Fuse, Strip or Metaspace");
    }
  }
  if (!bytes) place.fail("expected ByteFallback, because the model has byte_fallback");
  if (stripped != prefixed)
    place.fail(prefixed ? "expected a Strip of the prepended space" : "strips a space that is not prepended");
}

}  // namespace

bool is_of_characters(const JsonPlace& file) {
  if (!file.at("model").boolean_or("byte_fallback", false)) return false;
  return !file.has("pre_tokenizer") || file.at("pre_tokenizer").at("type").string() == "Metaspace";
}

void read_character_stages(const JsonPlace& file, TokenizerData& data) {
  data.characters = true;
  const bool metaspace = file.has("pre_tokenizer");
  if (metaspace && file.has("normalizer")) file.at("normalizer").fail("is not supported together with Metaspace");
  if (metaspace)
    read_metaspace(file.at("pre_tokenizer"), data);
  else
    read_normalizer(file.at("normalizer"), data);
  check_decoder(file.at("decoder"), data.add_prefix_space);
}

Json character_normalizer(const TokenizerData& data) {
  if (data.space_prefix != SpacePrefix::each_part) return nullptr;
  const Json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}};
  if (!data.add_prefix_space) return replace;
  return {{"type", "Sequence"}, {"normalizers", Json::array({Json{{"type", "Prepend"}, {"prepend", kMark}}, replace})}};
}

Json character_pre_tokenizer(const TokenizerData& data) {
  if (data.space_prefix == SpacePrefix::each_part) return nullptr;
  const char* scheme = !data.add_prefix_space                                 ? "never"
                       : data.space_prefix == SpacePrefix::first_unless_there ? "first"
                                                                              : "always";
  return {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", data.split_spaces}};
}

Json character_decoder(const TokenizerData& data) {
  Json stages = Json::array({Json{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
                             Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}}});
  if (data.add_prefix_space) stages.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  return {{"type", "Sequence"}, {"decoders", stages}};
}

std::string byte_token(unsigned char byte) { return fmt::format("<0x{:02X}>", byte); }

std::string with_space_marks(const std::string& text) {
  std::string marked;
  for (const char c : text) marked += c == ' ' ? kMark : std::string(1, c);
  return marked;
}

}  // namespace qkv
