// SPDX-License-Identifier: Apache-2.0
// Tokenization by score, worked by hand.
#include "text/scored_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>

#include "core/random.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;

// 0 unknown, 1 <s>, then tokens with scores.
TokenizerData data_of(const std::vector<std::pair<std::string, float>>& tokens, bool bytes) {
  TokenizerData data;
  data.tokens = {"<unk>", "<s>"};
  data.scores = {0, 0};
  data.unknown_token = 0;
  AddedToken begin;
  begin.id = 1;
  begin.content = "<s>";
  begin.special = true;
  data.added.push_back(begin);
  for (const auto& [text, score] : tokens) {
    data.tokens.push_back(text);
    data.scores.push_back(score);
  }
  if (bytes) {
    for (int b = 0; b < 256; ++b) {
      data.byte_ids.push_back(static_cast<std::int32_t>(data.tokens.size()));
      data.tokens.emplace_back(1, static_cast<char>(b));
      data.scores.push_back(0);
    }
  }
  return data;
}

std::vector<std::int32_t> encode(const TokenizerData& data, std::string_view text) {
  std::vector<std::int32_t> ids;
  ScoredEncoder(data).encode(text, ids);
  return ids;
}

TEST(ScoredEncoder, TheHighestScoreFirstThenTheLeftmost) {
  // 2 a, 3 b, 4 ab (-2), 5 ba (-1), 6 aba (-3), 7 bb (-1)
  const TokenizerData data = data_of({{"a", -9}, {"b", -9}, {"ab", -2}, {"ba", -1}, {"aba", -3}, {"bb", -1}}, true);
  EXPECT_THAT(encode(data, "ab"), ElementsAre(4));
  EXPECT_THAT(encode(data, "aba"), ElementsAre(6));      // a ba -> aba
  EXPECT_THAT(encode(data, "bba"), ElementsAre(7, 2));   // bb and ba tie: bb is further left
  EXPECT_THAT(encode(data, "abab"), ElementsAre(6, 3));  // ba: a ba b -> aba b
  EXPECT_THAT(encode(data, ""), ElementsAre());
}

TEST(ScoredEncoder, UnknownTextBecomesBytes) {
  const TokenizerData data = data_of({{"a", -1}, {"\xC3\xA9", -1}}, true);
  const auto byte = [&](int b) { return data.byte_ids[static_cast<std::size_t>(b)]; };
  EXPECT_THAT(encode(data, "a\xC3\xA9z"), ElementsAre(2, 3, byte('z')));
  EXPECT_THAT(encode(data, "\xC3\xA8"), ElementsAre(byte(0xC3), byte(0xA8)));
  EXPECT_THAT(encode(data, std::string_view("\0\xFF", 2)), ElementsAre(byte(0), byte(0xFF)));
  // Control tokens never match text: <s> spelt out is plain text.
  EXPECT_EQ(encode(data, "<s>").size(), 3u);
  EXPECT_THAT(encode(data_of({{"a", -1}}, false), "az"), ElementsAre(2, 0));  // no byte tokens: unknown
}

TEST(ScoredEncoder, MarksAreSpaces) {
  EXPECT_EQ(with_spaces("\xE2\x96\x81"
                        "a\xE2\x96\x81"),
            " a ");
  EXPECT_EQ(with_spaces("a b"), "a b");
  EXPECT_EQ(with_spaces(""), "");
  EXPECT_EQ(with_spaces("\xE2\x96"), "\xE2\x96");
}

TEST(ScoredEncoder, RefusesInvalidData) {
  TokenizerData data = data_of({{"a", -1}}, false);
  data.unknown_token = -1;
  EXPECT_THROW(ScoredEncoder{data}, std::invalid_argument);  // no token for bytes
  data = data_of({{"a", -1}}, true);
  data.scores.pop_back();
  EXPECT_THROW(ScoredEncoder{data}, std::invalid_argument);
}

// The same by the definition: compare all neighbours, merge the best pair, repeat.
std::vector<std::int32_t> by_definition(const TokenizerData& data, const std::string& text) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  const auto id_of = [&](const std::string& piece) {
    for (std::size_t id = 2; id < data.tokens.size(); ++id)
      if (data.tokens[id] == piece) return static_cast<int>(id);
    return -1;
  };
  for (;;) {
    int best = -1;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const int id = id_of(parts[i] + parts[i + 1]);
      if (id < 0) continue;
      const int before =
          best < 0 ? -1 : id_of(parts[static_cast<std::size_t>(best)] + parts[static_cast<std::size_t>(best) + 1]);
      if (before < 0 || data.scores[static_cast<std::size_t>(id)] > data.scores[static_cast<std::size_t>(before)])
        best = static_cast<int>(i);
    }
    if (best < 0) break;
    parts[static_cast<std::size_t>(best)] += parts[static_cast<std::size_t>(best) + 1];
    parts.erase(parts.begin() + best + 1);
  }
  std::vector<std::int32_t> ids;
  for (const std::string& part : parts) ids.push_back(id_of(part));
  return ids;
}

TEST(ScoredEncoder, AgreesWithTheDefinitionOnRandomTexts) {
  std::vector<std::pair<std::string, float>> tokens{{"a", -9}, {"b", -9}, {"c", -9}};
  const Random random(5, 0);
  std::uint64_t draw = 0;
  for (int i = 0; i < 30; ++i) {
    std::string token;
    for (std::uint64_t n = 2 + random.bits(draw++) % 4; n > 0; --n)
      token += static_cast<char>('a' + random.bits(draw++) % 3);
    bool known = false;
    for (const auto& [text, score] : tokens) known |= text == token;
    if (!known) tokens.emplace_back(token, -static_cast<float>(random.bits(draw++) % 6));
  }
  const TokenizerData data = data_of(tokens, false);
  for (int i = 0; i < 300; ++i) {
    std::string text;
    for (std::uint64_t n = random.bits(draw++) % 40; n > 0; --n)
      text += static_cast<char>('a' + random.bits(draw++) % 3);
    EXPECT_EQ(encode(data, text), by_definition(data, text)) << text;
  }
}

}  // namespace
}  // namespace qkv
