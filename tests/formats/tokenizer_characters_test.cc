// SPDX-License-Identifier: Apache-2.0
// tokenizer.json with character-level BPE and byte_fallback, as in LLaMA 2, TinyLlama and Mistral.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "qkv/tokenizer.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kMark = "\xE2\x96\x81";

json added(int id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Ids: <unk> 0, <s> 1, </s> 2, bytes 3 ... 258, then the list below; ab before _a.
json small_file() {
  json vocabulary = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  const char* digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary[std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">"] = 3 + byte;
  int next = 259;
  for (const std::string& token :
       {kMark, std::string("a"), std::string("b"), std::string("ab"), kMark + "a", kMark + kMark})
    vocabulary[token] = next++;
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kMark}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", {added(0, "<unk>", true), added(1, "<s>", true), added(2, "</s>", true)}},
          {"normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", kMark}}, replace}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", {{"String", kMark}}}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocabulary},
            {"merges", {"a b", kMark + " a", kMark + " " + kMark}}}}};
}

Tokenizer load(const json& file) { return Tokenizer::from_json("t.json", file.dump()); }

json with_metaspace(const std::string& scheme, bool split) {
  json file = small_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", split}};
  if (scheme == "never") file["decoder"]["decoders"].erase(3);
  return file;
}

TEST(CharacterTokenizer, MergesCharactersAndFallsBackToBytes) {
  const Tokenizer t = load(small_file());
  EXPECT_THAT(t.encode("a"), ElementsAre(263));         // _a
  EXPECT_THAT(t.encode("ab"), ElementsAre(259, 262));   // ab has priority over _a
  EXPECT_THAT(t.encode("a a"), ElementsAre(263, 263));  // across the boundary where other tokenizers split words
  EXPECT_THAT(t.encode(" b"), ElementsAre(264, 261));   // one space prepended and one of its own
  EXPECT_THAT(t.encode("\xC3\xA9"), ElementsAre(259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_THAT(t.encode("\xFF\n"), ElementsAre(259, 3 + 0xFF, 3 + '\n'));
  EXPECT_THAT(t.encode("a<s>a", SpecialTokens::as_ids), ElementsAre(263, 1, 263));
  EXPECT_THAT(t.encode(""), ElementsAre());
  EXPECT_EQ(t.end_token(), 2);
  for (const std::string text : {"a b ab", "  a\xFF\n\xE4\xB8\xAD ", "x", " "})
    EXPECT_EQ(t.decode(t.encode(text)), text);
  TextEncoder parts(t);
  std::vector<std::int32_t> ids;
  parts.encode("a", ids);
  parts.encode("a", ids, SpecialTokens::as_text, true);
  EXPECT_THAT(ids, ElementsAre(263, 260));
}

TEST(CharacterTokenizer, MetaspaceControlsWhereSpacesAreAdded) {
  const auto ids = [](const std::string& scheme, bool split, const std::string& text) {
    return load(with_metaspace(scheme, split)).encode(text, SpecialTokens::as_ids);
  };
  EXPECT_THAT(ids("first", false, "a<s>a"), ElementsAre(263, 1, 260));
  EXPECT_THAT(ids("always", false, "a<s>a"), ElementsAre(263, 1, 263));
  EXPECT_THAT(ids("always", false, " a"), ElementsAre(263));  // already has one
  EXPECT_THAT(ids("never", false, "a  b"), ElementsAre(260, 264, 261));
  EXPECT_THAT(ids("never", true, "a  b"), ElementsAre(260, 259, 259, 261));
}

TEST(CharacterTokenizer, RoundTrips) {
  const auto same = [](const json& file) {
    const Tokenizer one = load(file), two = Tokenizer::from_json("again.json", one.json());
    EXPECT_EQ(one.json(), two.json());
    const json written = json::parse(one.json());
    for (const char* key : {"normalizer", "pre_tokenizer", "decoder", "added_tokens"})
      EXPECT_EQ(written[key], file[key]);
    EXPECT_EQ(written["model"]["vocab"], file["model"]["vocab"]);
    EXPECT_EQ(written["model"]["merges"], file["model"]["merges"]);
    EXPECT_EQ(written["model"]["byte_fallback"], true);
  };
  same(small_file());
  for (const char* scheme : {"first", "always", "never"}) same(with_metaspace(scheme, scheme[0] == 'n'));
}

TEST(CharacterTokenizer, RefusesByName) {
  const auto says = [](const json& file, const std::string& what) {
    EXPECT_THAT([&] { load(file); }, ThrowsMessage<FileError>(HasSubstr(what)));
  };
  json file = small_file();
  file["model"]["vocab"].erase("<0x0A>");
  says(file, "no token '<0x0A>'");
  file = small_file();
  file["model"]["byte_fallback"] = false;
  file["normalizer"] = nullptr;
  says(file, "must end with ByteLevel, or be Metaspace or null with byte_fallback");
  file = small_file();
  file["normalizer"] = {{"type", "Lowercase"}};
  says(file, "'Lowercase' is not supported here");
  file["normalizer"] = nullptr;
  says(file, "normalizer");
  file = small_file();
  file["decoder"]["decoders"].erase(3);
  says(file, "expected a Strip");
  file["decoder"]["decoders"].erase(1);
  says(file, "expected ByteFallback");
  file = small_file();
  file["added_tokens"][1]["normalized"] = true;
  says(file, "normalized");
  file = with_metaspace("first", false);
  file["pre_tokenizer"]["prepend_scheme"] = "last";
  says(file, "always, first or never");
  file = with_metaspace("first", false);
  file["normalizer"] = small_file()["normalizer"];
  says(file, "together with Metaspace");
}

}  // namespace
}  // namespace qkv
