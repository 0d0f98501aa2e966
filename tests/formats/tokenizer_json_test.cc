// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "core/random.h"
#include "formats/scratch.h"
#include "formats/tokenizer_json.h"
#include "qkv/error.h"
#include "qkv/tokenizer.h"
#include "text/byte_level.h"

namespace qkv {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string kText = "the cat sat on the mat and the cat ran; that cat, the fat cat, sat at the mat again\n";

// The 256 bytes, then the added tokens.
json small_file() {
  json vocabulary = json::object();
  for (int b = 0; b < 256; ++b) vocabulary[to_byte_level(std::string(1, static_cast<char>(b)))] = b;
  vocabulary["bc"] = 256;
  vocabulary["abc"] = 257;
  vocabulary["Ġt"] = 258;
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", json::array({{{"id", 259},
                                         {"content", "<|endoftext|>"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}}})},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocabulary},
            {"merges", json::array({"b c", "Ġ t"})}}}};
}

Tokenizer load(const Scratch& scratch, const json& file) {
  return Tokenizer::load(scratch.file("tokenizer.json", file.dump()));
}

std::string error_of(const Scratch& scratch, const json& file) {
  try {
    load(scratch, file);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(TokenizerJson, ReadsMergesAsStringsAndAsPairs) {
  const Scratch scratch;
  json file = small_file();
  for (const json& merges : {json::array({"b c", "Ġ t"}), json::array({{"b", "c"}, {"Ġ", "t"}})}) {
    file["model"]["merges"] = merges;
    const Tokenizer tokenizer = load(scratch, file);
    EXPECT_EQ(tokenizer.size(), 260);
    EXPECT_EQ(tokenizer.end_token(), 259);
    EXPECT_THAT(tokenizer.encode("abc ta\n"), ElementsAre('a', 256, 258, 'a', '\n'));
    EXPECT_EQ(tokenizer.decode(258), " t");
    EXPECT_EQ(tokenizer.decode(259), "<|endoftext|>");
  }
}

// A template may put any token around a text, even a byte that is not valid UTF-8 by itself.
TEST(TokenizerJson, WritesATemplateOfBytes) {
  const Scratch scratch;
  json file = small_file();
  const json special = {{"SpecialToken", {{"id", "byte"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", json::array({special, text})},
                            {"pair", json::array({special, text, text})},
                            {"special_tokens", {{"byte", {{"id", "byte"}, {"ids", {255}}, {"tokens", {"byte"}}}}}}};
  const Tokenizer first = load(scratch, file);
  const Tokenizer again = Tokenizer::load(scratch.file("again.json", first.json()));
  EXPECT_EQ(again.json(), first.json());
  EXPECT_THAT(json::parse(again.json())["post_processor"]["special_tokens"].begin().value()["ids"], ElementsAre(255));
}

TEST(TokenizerJson, RefusesToWriteTokensThatJsonCannotRepresent) {
  const Scratch scratch;
  TokenizerData data = read_tokenizer_json(scratch.file("tokenizer.json", small_file().dump()));
  data.tokens.back() = data.added.back().content = "<\xff>";
  try {
    tokenizer_json_text(data);
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("expected added tokens in UTF-8, as JSON requires; found id 259"));
  }
}

TEST(TokenizerJson, HonoursIgnoreMergesAndPrefixSpaceAndRegex) {
  const Scratch scratch;
  json file = small_file();
  file["model"]["ignore_merges"] = true;
  EXPECT_THAT(load(scratch, file).encode("abc"), ElementsAre(257));
  file = small_file();
  file["pre_tokenizer"]["add_prefix_space"] = true;
  EXPECT_THAT(load(scratch, file).encode("ta"), ElementsAre(258, 'a'));
  EXPECT_THAT(load(scratch, file).encode(" ta"), ElementsAre(258, 'a'));
  std::vector<std::int32_t> ids;  // a text in two parts gets its space only once
  TextEncoder encoder(load(scratch, file));
  encoder.encode("ta", ids);
  encoder.encode("ta", ids, SpecialTokens::as_text, true);
  EXPECT_THAT(ids, ElementsAre(258, 'a', 't', 'a'));
  file = small_file();
  file["model"]["merges"] = json::array({"! b"});
  file["model"]["vocab"].erase("bc");
  file["model"]["vocab"]["!b"] = 256;
  EXPECT_THAT(load(scratch, file).encode("!b"), ElementsAre('!', 'b'));  // they are split apart
  file["pre_tokenizer"]["use_regex"] = false;
  EXPECT_THAT(load(scratch, file).encode("!b"), ElementsAre(256));
}

TEST(TokenizerJson, ReadsSequencesOfSplits) {
  const Scratch scratch;
  json file = small_file();
  file["model"]["vocab"].erase("bc");
  file["model"]["vocab"]["11"] = 256;
  file["model"]["merges"] = json::array({"1 1"});
  EXPECT_THAT(load(scratch, file).encode("11"), ElementsAre(256));
  const json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const auto sequence = [&](const json& first) {
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", json::array({first, bytes})}};
    const Tokenizer tokenizer = load(scratch, file);
    tokenizer.save(scratch.path("again.json"));
    EXPECT_EQ(Tokenizer::load(scratch.path("again.json")).encode("x11.11"), tokenizer.encode("x11.11"));
    return tokenizer.encode("11.1");
  };
  EXPECT_THAT(sequence({{"type", "Digits"}, {"individual_digits", true}}), ElementsAre('1', '1', '.', '1'));
  EXPECT_THAT(sequence({{"type", "Digits"}, {"individual_digits", false}}), ElementsAre(256, '.', '1'));
  EXPECT_THAT(
      sequence({{"type", "Split"}, {"pattern", {{"Regex", "\\p{N}{1}"}}}, {"behavior", "Isolated"}, {"invert", false}}),
      ElementsAre('1', '1', '.', '1'));
  EXPECT_THAT(
      sequence({{"type", "Split"}, {"pattern", {{"String", "1."}}}, {"behavior", "Isolated"}, {"invert", false}}),
      ElementsAre('1', '1', '.', '1'));
}

TEST(TokenizerJson, AddedTokensOutsideTheVocabulary) {
  const Scratch scratch;
  json file = small_file();
  file["added_tokens"].push_back({{"id", 260}, {"content", "<né>"}});
  const Tokenizer tokenizer = load(scratch, file);
  EXPECT_EQ(tokenizer.size(), 261);
  EXPECT_THAT(tokenizer.encode("a<né>b"), ElementsAre('a', 260, 'b'));
  EXPECT_EQ(tokenizer.decode(260), "<né>");
}

TEST(TokenizerJson, SaveAndLoadRoundTrips) {
  const Scratch scratch;
  const Random random(2);
  for (const Tokenizer& tokenizer :
       {Tokenizer::bytes(), Tokenizer::train_bpe(kText, 280, {}), load(scratch, small_file())}) {
    tokenizer.save(scratch.path("saved.json"));
    const Tokenizer back = Tokenizer::load(scratch.path("saved.json"));
    ASSERT_EQ(back.size(), tokenizer.size());
    EXPECT_EQ(back.end_token(), tokenizer.end_token());
    for (std::int32_t id = 0; id < tokenizer.size(); ++id) ASSERT_EQ(back.decode(id), tokenizer.decode(id)) << id;
    std::string bytes = kText;
    for (std::uint64_t i = 0; i < 500; ++i) bytes += static_cast<char>(random.below(i, 256));
    for (const std::string& text : {kText, bytes, std::string("a<|endoftext|>b")}) {
      EXPECT_EQ(back.encode(text), tokenizer.encode(text));
      EXPECT_EQ(back.encode(text, SpecialTokens::as_ids), tokenizer.encode(text, SpecialTokens::as_ids));
      EXPECT_EQ(back.decode(back.encode(text)), text);
    }
    const std::string once = read_all(scratch.path("saved.json"));
    back.save(scratch.path("saved.json"));
    EXPECT_EQ(read_all(scratch.path("saved.json")), once);
  }
}

TEST(TokenizerJson, RefusesUnsupportedComponents) {
  const Scratch scratch;
  const auto refused = [&](const char* pointer, const json& value) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    return error_of(scratch, file);
  };
  EXPECT_THAT(refused("/normalizer", {{"type", "Lowercase"}}), HasSubstr("'Lowercase' is not supported"));
  EXPECT_THAT(refused("/padding", json::object()), HasSubstr("'padding'"));
  EXPECT_THAT(refused("/post_processor", {{"type", "BertProcessing"}}), HasSubstr("'BertProcessing' is not"));
  EXPECT_THAT(refused("/post_processor", {{"type", "TemplateProcessing"}}), HasSubstr("has no 'special_tokens'"));
  EXPECT_EQ(refused("/post_processor", {{"type", "ByteLevel"}, {"trim_offsets", false}}), "no error");
  EXPECT_THAT(refused("/decoder", nullptr), HasSubstr("has no decoder; expected ByteLevel"));
  EXPECT_THAT(refused("/pre_tokenizer", nullptr), HasSubstr("must end with ByteLevel"));
  EXPECT_THAT(refused("/pre_tokenizer", {{"type", "Whitespace"}}), HasSubstr("'Whitespace' is not supported"));
  EXPECT_THAT(refused("/pre_tokenizer/add_prefix_space", 1), HasSubstr("expected true or false; found 1"));
  EXPECT_THAT(refused("/model/type", "WordPiece"), HasSubstr("only BPE"));
  EXPECT_THAT(refused("/model/dropout", 0.1), HasSubstr("'dropout'"));
  EXPECT_THAT(refused("/model/end_of_word_suffix", "</w>"), HasSubstr("'end_of_word_suffix'"));
  EXPECT_THAT(refused("/model/more", 1), HasSubstr("unknown key 'more'"));
  EXPECT_THAT(refused("/extra", 1), HasSubstr("unknown key 'extra'"));
}

TEST(TokenizerJson, RefusesInvalidVocabulariesAndMerges) {
  const Scratch scratch;
  const auto refused = [&](const char* pointer, const json& value) {
    json file = small_file();
    file[json::json_pointer(pointer)] = value;
    return error_of(scratch, file);
  };
  EXPECT_THAT(refused("/model/vocab/bc", 400000), HasSubstr("one of them has id 400000"));
  EXPECT_THAT(refused("/model/vocab/bc", 255), HasSubstr("two tokens"));
  EXPECT_THAT(refused("/model/vocab/bc", -1), HasSubstr("whole number"));
  EXPECT_THAT(refused("/model/vocab/bc", 256.0), HasSubstr("whole number"));
  EXPECT_THAT(refused("/model/vocab/bc", "256"), HasSubstr("found \"256\""));
  EXPECT_THAT(refused("/model/vocab", json::array()), HasSubstr("expected an object"));
  EXPECT_THAT(refused("/model/vocab", json::object()), HasSubstr("'b' is not in the vocabulary"));
  EXPECT_THAT(refused("/model/merges/0", "b"), HasSubstr("'merges'[0]: must be two tokens"));
  EXPECT_THAT(refused("/model/merges/0", "b c d"), HasSubstr("must be two tokens"));
  EXPECT_THAT(refused("/model/merges/0", json::array({"b"})), HasSubstr("must be a pair"));
  EXPECT_THAT(refused("/model/merges/0", "b d"), HasSubstr("'bd' is not in the vocabulary"));
  EXPECT_THAT(refused("/model/merges/0", "Ġ t"), HasSubstr("unique merges"));
  EXPECT_THAT(refused("/added_tokens/0/id", 258), HasSubstr("two tokens"));
  EXPECT_THAT(refused("/added_tokens/0/content", ""), HasSubstr("is empty"));
  EXPECT_THAT(refused("/added_tokens/0/content", "bc"), HasSubstr("has the ids 256 and 259"));
  json file = small_file();
  file["model"]["vocab"].erase("a");
  file["model"]["vocab"]["aa"] = 'a';
  // A byte without a token: dropped if there is no unknown token, which would otherwise replace it.
  const auto ids = [&] {
    scratch.file("tokenizer.json", file.dump());
    return Tokenizer::load(scratch.path("tokenizer.json")).encode("dad a a");
  };
  EXPECT_EQ(ids(), (std::vector<std::int32_t>{'d', 'd', ' ', ' '}));
  file["model"]["unk_token"] = "z";
  EXPECT_EQ(ids(), (std::vector<std::int32_t>{'d', 'z', 'd', ' ', 'z', ' ', 'z'}));
  file["model"]["unk_token"] = "zz";
  EXPECT_THAT(error_of(scratch, file), HasSubstr("'zz' is not a token"));
}

TEST(TokenizerJson, RefusesTextThatIsNotStrictJson) {
  const Scratch scratch;
  const auto refused = [&](const std::string& text) {
    try {
      Tokenizer::load(scratch.file("tokenizer.json", text));
    } catch (const FileError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused("{} x"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refused("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refused(std::string("{}\0", 3)), HasSubstr("NUL"));
  EXPECT_THAT(refused(R"({"a":1,"a":2})"), HasSubstr("'a' occurs twice"));
  EXPECT_THAT(refused(std::string(100000, '[')), HasSubstr("nested deeper"));
  EXPECT_THAT(refused(R"({"a":")"
                      "\xFF\"}"),
              HasSubstr("not valid JSON"));
  // Every truncation and many bit flips of a real file.
  Tokenizer::bytes().save(scratch.path("whole.json"));
  const std::string whole = read_all(scratch.path("whole.json"));
  for (std::size_t size = 1; size + 2 < whole.size(); size += 13) EXPECT_NE(refused(whole.substr(0, size)), "no error");
  const Random random(4);
  for (std::uint64_t i = 0; i < 1000; ++i) {
    std::string bytes = whole;
    bytes[random.below(2 * i, bytes.size())] = static_cast<char>(random.below(2 * i + 1, 256));
    refused(bytes);  // throws only FileError
  }
}

}  // namespace
}  // namespace qkv
