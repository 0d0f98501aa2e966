// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

#include <gmock/gmock.h>

#include "core/random.h"
#include "qkv/tokenizer.h"

namespace qkv {
namespace {

using testing::ElementsAre;

const std::string kUnknown = "\xEF\xBF\xBD";

// The text shown after each push, and at the end.
std::vector<std::string> shown(const std::vector<std::string>& pushes) {
  Utf8Stream stream;
  std::vector<std::string> parts;
  for (const std::string& bytes : pushes) parts.push_back(stream.push(bytes));
  parts.push_back(stream.flush());
  return parts;
}

TEST(Utf8Step, KnowsTheBoundsOfEveryRange) {
  const auto kind = [](std::string_view text) { return utf8_step(text).kind; };
  for (const char* text : {"a", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80", "\xEF\xBF\xBF",
                           "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_EQ(kind(text), Utf8Step::valid) << text;
    EXPECT_EQ(utf8_step(text).length, std::string_view(text).size()) << text;
  }
  for (const char* text : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                           "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_EQ(kind(text), Utf8Step::invalid) << text;
    EXPECT_EQ(utf8_step(text).length, 1u) << text;
  }
  EXPECT_EQ(kind("\xE6\xAD"), Utf8Step::unfinished);
  EXPECT_EQ(kind("\xF4\x8F"), Utf8Step::unfinished);
  EXPECT_EQ(utf8_step("\xE6\xADz").kind, Utf8Step::invalid);
  EXPECT_EQ(utf8_step("\xE6\xADz").length, 2u);
}

TEST(Utf8Step, FindsTheCharactersAtBothEnds) {
  EXPECT_EQ(first_character("歪a"), "歪");
  EXPECT_EQ(last_character("a歪"), "歪");
  EXPECT_EQ(last_character("🦙"), "🦙");
  EXPECT_EQ(first_character("\xFFz"), "\xFF");
  EXPECT_EQ(last_character("z\x85"), "\x85");
  EXPECT_EQ(first_character(""), "");
  EXPECT_EQ(last_character(""), "");
}

// ggml-org/llama.cpp #4036: characters split over tokens.
TEST(Utf8Stream, ShowsWholeCharactersOnly) {
  EXPECT_THAT(shown({"\xE6\xAD", "\xAA"}), ElementsAre("", "歪", ""));
  EXPECT_THAT(shown({"\xF0\x9F", "\xA6\x99"}), ElementsAre("", "🦙", ""));
  EXPECT_THAT(shown({"a\xF0", "\x9F", "\xA6", "\x99z"}), ElementsAre("a", "", "", "🦙z", ""));
  EXPECT_THAT(shown({"\x85"}), ElementsAre(kUnknown, ""));
  EXPECT_THAT(shown({"\xE6\xAD"}), ElementsAre("", kUnknown));  // the tail is flushed as one character
  EXPECT_THAT(shown({""}), ElementsAre("", ""));
  EXPECT_THAT(shown({std::string("\0", 1)}), ElementsAre(std::string("\0", 1), ""));
}

// #8691: bytes that cannot become a character.
TEST(Utf8Stream, ShowsInvalidBytesAsTheReplacementCharacter) {
  EXPECT_THAT(shown({"\xFF"}), ElementsAre(kUnknown, ""));
  EXPECT_THAT(shown({"\xC0\x80"}), ElementsAre(kUnknown + kUnknown, ""));
  EXPECT_THAT(shown({"\xED\xA0\x80"}), ElementsAre(kUnknown + kUnknown + kUnknown, ""));
  EXPECT_THAT(shown({"\xF4\x90\x80\x80"}), ElementsAre(kUnknown + kUnknown + kUnknown + kUnknown, ""));
  EXPECT_THAT(shown({"\xE6\xAD", "z"}), ElementsAre("", kUnknown + "z", ""));
  EXPECT_THAT(shown({"\xE6", "\xE6\xAD\xAA"}), ElementsAre("", kUnknown + "歪", ""));
}

TEST(Utf8Stream, DoesNotDependOnHowTheBytesArrive) {
  const Random random(3);
  std::uint64_t draw = 0;
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (int i = 0; i < 40; ++i) {
      const char* pieces[] = {"a", "é", "歪", "🦙", "\xFF", "\xE6", "\xAD", "\xF0\x9F"};
      bytes += pieces[random.below(draw++, 8)];
    }
    Utf8Stream whole, pieces;
    std::string at_once = whole.push(bytes), one_by_one;
    at_once += whole.flush();
    for (const char byte : bytes) one_by_one += pieces.push(std::string_view(&byte, 1));
    one_by_one += pieces.flush();
    ASSERT_EQ(at_once, one_by_one);
    for (std::string_view rest = at_once; !rest.empty();) {
      const Utf8Step step = utf8_step(rest);
      ASSERT_EQ(step.kind, Utf8Step::valid);
      rest.remove_prefix(step.length);
    }
  }
}

}  // namespace
}  // namespace qkv
