// SPDX-License-Identifier: Apache-2.0
#include "text/splitter.h"

#include <gmock/gmock.h>

#include <iterator>

#include "core/random.h"

namespace qkv {
namespace {

using testing::ElementsAre;

std::vector<std::string> pieces(std::string_view text, const std::vector<std::string>& patterns) {
  std::vector<std::string> list;
  Splitter(patterns).split(text, [&](std::string_view piece) { list.emplace_back(piece); });
  return list;
}
std::vector<std::string> gpt2(std::string_view text) { return pieces(text, {std::string(kGpt2Pattern)}); }

TEST(Splitter, SplitsLikeGpt2) {
  EXPECT_THAT(gpt2("Hello world"), ElementsAre("Hello", " world"));
  EXPECT_THAT(gpt2("I'll say: don't!"), ElementsAre("I", "'ll", " say", ":", " don", "'t", "!"));
  EXPECT_THAT(gpt2("In 1611, KJV."), ElementsAre("In", " 1611", ",", " KJV", "."));
  EXPECT_THAT(gpt2("a   b"), ElementsAre("a", "  ", " b"));  // the last space belongs to the next word
  EXPECT_THAT(gpt2("a \n\n b\n"), ElementsAre("a", " \n\n", " b", "\n"));
  EXPECT_THAT(gpt2("end  "), ElementsAre("end", "  "));
  EXPECT_THAT(gpt2("I'LL"), ElementsAre("I", "'", "LL"));  // only lower-case contractions
  EXPECT_THAT(gpt2(""), ElementsAre());
}

TEST(Splitter, KnowsLettersAndDigitsOfEveryScript) {
  EXPECT_THAT(gpt2("naïve Übung"), ElementsAre("naïve", " Übung"));
  EXPECT_THAT(gpt2("你好，世界"), ElementsAre("你好", "，", "世界"));
  EXPECT_THAT(gpt2("x²½"), ElementsAre("x", "²½"));
  EXPECT_THAT(gpt2("a\u00A0b"), ElementsAre("a", "\u00A0", "b"));
  EXPECT_THAT(gpt2("🦙🦙 ok"), ElementsAre("🦙🦙", " ok"));
}

TEST(Splitter, InvalidBytesAreSeparatePieces) {
  EXPECT_THAT(gpt2("ab\xFFgh"), ElementsAre("ab", "\xFF", "gh"));
  EXPECT_THAT(gpt2("\xE6\xAD"), ElementsAre("\xE6", "\xAD"));
  EXPECT_THAT(gpt2("\xC0\x80 x"), ElementsAre("\xC0", "\x80", " x"));
  EXPECT_THAT(gpt2("\xED\xA0\x80"), ElementsAre("\xED", "\xA0", "\x80"));
  EXPECT_THAT(gpt2(std::string("a\0b", 3)), ElementsAre("a", std::string("\0", 1), "b"));
}

TEST(Splitter, AppliesItsStagesInOrder) {
  EXPECT_THAT(pieces("a1 2", {}), ElementsAre("a1 2"));
  EXPECT_THAT(pieces("ab12 34", {R"(\p{N})"}), ElementsAre("ab", "1", "2", " ", "3", "4"));
  // SmolLM: splits off single digits, then applies GPT-2's pattern to the rest.
  EXPECT_THAT(pieces("year 1611 in", {R"(\p{N})", std::string(kGpt2Pattern)}),
              ElementsAre("year", " ", "1", "6", "1", "1", " in"));
  EXPECT_THAT(pieces("abc", {"x*"}), ElementsAre("abc"));  // empty matches are ignored
  EXPECT_THROW(Splitter({"(unclosed"}), std::invalid_argument);
}

TEST(Splitter, LosesNothing) {
  const Random random(5);
  std::uint64_t draw = 0;
  for (int round = 0; round < 500; ++round) {
    std::string text;
    for (std::uint64_t n = random.below(draw++, 60); n > 0; --n) {
      const char* parts[] = {" ",  "\n",   "a",    "B",        "'s", "7", "é",
                             "歪", "🦙", "\xFF", "\xE6\xAD", "\t", "!", "\u2003"};
      text += parts[random.below(draw++, 14)];
    }
    std::string joined;
    for (const std::string& piece : gpt2(text)) {
      ASSERT_FALSE(piece.empty());
      joined += piece;
    }
    ASSERT_EQ(joined, text);
  }
}

// Compares the ASCII scanner with the expression itself; an extra pair of brackets disables the scanner.
TEST(Splitter, SplitsAsciiAsTheExpressionDoes) {
  const std::vector<std::string> expression{"(?:" + std::string(kGpt2Pattern) + ")"};
  const char* parts[] = {" ",   "  ", "\n", "\r\n", "\v",     "\f",     "a",      "Bc",     "'s",
                         "'t",  "'m", "'d", "'r",   "'re",    "'v",     "ve",     "'l",     "'ll",
                         "'LL", "''", "7",  "42",   "!",      "-",      "_",      "\x1C",   "\x7F",
                         "é",   "歪", "²",  "🦙", "\u00A0", "\u2003", "\u2019", "\u0301", "\xFF"};
  const Random random(9);
  std::uint64_t draw = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    // Mostly ASCII, then everything.
    const std::uint64_t kinds = round % 2 ? std::size(parts) : std::size(parts) - 9;
    for (std::uint64_t n = random.below(draw++, 12); n > 0; --n) text += parts[random.below(draw++, kinds)];
    ASSERT_EQ(gpt2(text), pieces(text, expression)) << text;
  }
}

TEST(Splitter, HandlesLongRuns) {
  EXPECT_THAT(gpt2(std::string(3'000'000, 'x')), ElementsAre(std::string(3'000'000, 'x')));
  EXPECT_THAT(gpt2(std::string(1'000'000, ' ') + "x"), ElementsAre(std::string(999'999, ' '), " x"));
}

}  // namespace
}  // namespace qkv
