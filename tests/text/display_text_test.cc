// SPDX-License-Identifier: Apache-2.0
#include "qkv/display_text.h"

#include <gtest/gtest.h>

namespace qkv {
namespace {

TEST(TokenText, NamesSpacesAndKeepsCharacters) {
  EXPECT_EQ(token_text(" the"), "␣the");
  EXPECT_EQ(token_text("a\n\tb"), "a\\n\\tb");
  EXPECT_EQ(token_text("歪é🦙"), "歪é🦙");
  EXPECT_EQ(token_text(""), "");
}

TEST(TokenText, EscapesTerminalControls) {
  EXPECT_EQ(token_text("\x1b[31m"), "\\x1B[31m");
  EXPECT_EQ(token_text(std::string(1, '\0')), "\\x00");
  EXPECT_EQ(token_text("\x7f"), "\\x7F");
  EXPECT_EQ(token_text("\xC2\x9B"), "\\xC2\\x9B") << "U+009B, one character for ESC [";
  EXPECT_EQ(token_text("\u202E"), "\\xE2\\x80\\xAE") << "right-to-left override";
}

TEST(TokenText, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(token_text("\xE6\xAD"), "\\xE6\\xAD") << "an incomplete character";
  EXPECT_EQ(token_text("\xE6\xADz"), "\\xE6\\xADz");
  EXPECT_EQ(token_text("\xAD\xFF"), "\\xAD\\xFF");
  EXPECT_EQ(token_text("\xC0\x80"), "\\xC0\\x80") << "overlong";
  EXPECT_EQ(token_text("\xED\xA0\x80"), "\\xED\\xA0\\x80") << "a surrogate";
  EXPECT_EQ(token_text("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80") << "past U+10FFFF";
}

TEST(AlignedText, CountsColumns) {
  EXPECT_EQ(text_columns("abc"), 3u);
  EXPECT_EQ(text_columns("歪🦙"), 4u);
  EXPECT_EQ(text_columns("e\u0301"), 1u) << "a combining accent";
  EXPECT_EQ(left_aligned("歪", 4), "歪  ");
  EXPECT_EQ(right_aligned("歪", 4), "  歪");
  EXPECT_EQ(left_aligned("", 2), "  ");
}

TEST(AlignedText, TruncatesWideText) {
  EXPECT_EQ(left_aligned("abcd", 4), "abcd");
  EXPECT_EQ(left_aligned("abcde", 4), "abc…");
  EXPECT_EQ(left_aligned("歪歪歪", 4), "歪… ") << "a wide character does not fit into one column";
  EXPECT_EQ(right_aligned("歪歪歪", 4), " 歪…");
}

TEST(WithCommas, GroupsThreeDigits) {
  for (const auto& [digits, grouped] : {std::pair("0", "0"), std::pair("999", "999"), std::pair("1000", "1,000"),
                                        std::pair("98698752", "98,698,752"), std::pair("123456", "123,456")})
    EXPECT_EQ(with_commas(digits), grouped);
}

}  // namespace
}  // namespace qkv
