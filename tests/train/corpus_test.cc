// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "qkv/dataset.h"
#include "qkv/error.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::ThrowsMessage;

void write(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

TEST(Corpus, CutsAtTheStartOfALine) {
  const std::string text = "one two three\nfour five six\nseven\neight\n";  // 40 bytes; 90 % is byte 36
  const Corpus corpus = Corpus::from_text(text);
  EXPECT_THAT(corpus.training(), ElementsAre(text.substr(0, 36)));  // no line begins after it
  const Corpus quarter = Corpus::from_text(text, 0.5);
  EXPECT_THAT(quarter.training(), ElementsAre("one two three\nfour five six\n"));
  EXPECT_THAT(quarter.validation(), ElementsAre("seven\neight\n"));
  EXPECT_EQ(quarter.training_bytes(), 28);
  EXPECT_EQ(quarter.validation_bytes(), 12);
}

TEST(Corpus, NeverCutsACharacter) {
  const std::string text =
      "ab\xE6\xAD\xAA\xE6\xAD\xAA"
      "cd";  // 10 bytes; the middle is inside the first character's
  const Corpus corpus = Corpus::from_text(text, 0.7);
  EXPECT_THAT(corpus.training(), ElementsAre("ab\xE6\xAD\xAA"));
}

TEST(Corpus, KeepsNoValidationIfAskedTo) {
  const Corpus corpus = Corpus::from_text("abc", 0);
  EXPECT_EQ(corpus.training_bytes(), 3);
  EXPECT_THAT(corpus.validation(), IsEmpty());
  EXPECT_THROW(Corpus::from_text("abc", 1), std::invalid_argument);
  EXPECT_THROW(Corpus::from_text("abc", -0.1), std::invalid_argument);
}

TEST(Corpus, JoinsFilesAndCutsOne) {
  const TestDirectory directory;
  write(directory / "a", "0123456789");
  write(directory / "b", "abcdefghij");
  const Corpus corpus = Corpus::read({directory / "a", directory / "b"}, 0.25);
  EXPECT_THAT(corpus.training(), ElementsAre("0123456789", "abcde"));
  EXPECT_THAT(corpus.validation(), ElementsAre("fghij"));
  std::string seen;
  corpus.with_training_text([&](std::string_view text) { seen = text; });
  EXPECT_EQ(seen, "0123456789abcde");
  EXPECT_NE(corpus.checksum(), Corpus::read({directory / "b", directory / "a"}, 0.25).checksum());
  EXPECT_EQ(corpus.checksum(), Corpus::read({directory / "a", directory / "b"}, 0.5).checksum());
}

TEST(Corpus, ReadsBytesAsTheyAre) {
  const TestDirectory directory;
  const std::string text("\0\xFF\xC0\x80\r\n\0", 7);
  write(directory / "a", text);
  EXPECT_THAT(Corpus::read({directory / "a"}, 0).training(), ElementsAre(std::string_view(text)));
}

TEST(Corpus, SaysWhatIsWrongWithAFile) {
  const TestDirectory directory;
  write(directory / "empty", "");
  EXPECT_THAT([&] { Corpus::read({directory / "missing"}); }, ThrowsMessage<FileError>(HasSubstr("missing: ")));
  EXPECT_THAT([&] { Corpus::read({directory / "empty"}); }, ThrowsMessage<FileError>(HasSubstr("empty: ")));
  EXPECT_THROW(Corpus::read({directory.path()}), FileError);
}

}  // namespace
}  // namespace qkv
