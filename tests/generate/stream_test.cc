// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "qkv/tokenizer.h"

namespace {

// Reported bug R55: a UTF-8 character split over tokens was shown as replacement characters.
TEST(Stream, ShowsACharacterOnceItsLastTokenIsThere) {
  qkv::Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE6\xAD"), "");
  EXPECT_EQ(stream.push("\xAA"), "歪");
  EXPECT_EQ(stream.push("\xF0\x9F"), "");
  EXPECT_EQ(stream.push("\xA6\x99"), "🦙");
  EXPECT_EQ(stream.push("\x85"), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push("a"), "a");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Stream, TheBufferedTailIsFlushedAtTheEnd) {
  qkv::Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xF0\x9F"), "x");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(Stream, ByteTokensFormWholeCharacters) {
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  const std::string text = "a歪🦙é";
  qkv::Utf8Stream stream;
  std::string shown;
  int pieces = 0;
  for (const std::int32_t id : tokenizer.encode(text)) {
    const std::string piece = stream.push(tokenizer.decode(id));
    shown += piece;
    pieces += !piece.empty();
  }
  EXPECT_EQ(shown + stream.flush(), text);
  EXPECT_EQ(pieces, 4);
}

}  // namespace
