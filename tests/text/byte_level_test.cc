// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <gtest/gtest.h>

#include <set>

namespace qkv {
namespace {

TEST(ByteLevel, SpellsTheBytesLikeGpt2) {
  EXPECT_EQ(to_byte_level("Hi!~"), "Hi!~");
  EXPECT_EQ(to_byte_level(" "), "Ġ");   // U+0120: the 33rd of the shifted bytes
  EXPECT_EQ(to_byte_level("\n"), "Ċ");  // U+010A
  EXPECT_EQ(to_byte_level(std::string(1, '\0')), "Ā");
  EXPECT_EQ(to_byte_level("\x7F"), "ġ");  // U+0121
  EXPECT_EQ(to_byte_level("\xA0"), "ł");  // U+0142
  EXPECT_EQ(to_byte_level("\xA1"), "¡");
  EXPECT_EQ(to_byte_level("\xAD"), "Ń");  // U+0143, the last
  EXPECT_EQ(to_byte_level("\xFF"), "ÿ");
  EXPECT_EQ(to_byte_level("é"), "Ã©");
}

TEST(ByteLevel, IsOneToOneAndInvertible) {
  std::set<std::string> seen;
  std::string all;
  for (int b = 0; b < 256; ++b) {
    const std::string byte(1, static_cast<char>(b));
    all += byte;
    EXPECT_TRUE(seen.insert(to_byte_level(byte)).second) << b;
    EXPECT_EQ(from_byte_level(to_byte_level(byte)), byte) << b;
  }
  EXPECT_EQ(from_byte_level(to_byte_level(all)), all);
  EXPECT_EQ(from_byte_level(""), "");
}

TEST(ByteLevel, RefusesOtherCharacters) {
  for (const char* text : {" ", "\n", "\xC2\xAD", "\xC5\x84", "歪", "\xC4", "\xC4x", "\xFF", "a\xE2\x82"})
    EXPECT_FALSE(from_byte_level(text)) << text;
}

}  // namespace
}  // namespace qkv
