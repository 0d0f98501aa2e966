// SPDX-License-Identifier: Apache-2.0
#include "qkv/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <numeric>
#include <set>

#include "qkv/error.h"
#include "qkv/threads.h"
#include "text/tokenizer_data.h"
#include "train/checksum.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::int32_t> counting(std::int64_t count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

TokenDataset counted(std::int64_t count) { return TokenDataset::from_tokens(counting(count), {}, 1000000); }

std::vector<std::int32_t> all_tokens(const TokenPart& part) {
  const auto count = static_cast<std::size_t>(part.size() - 1);
  std::vector<std::int32_t> tokens(count), targets(count);
  part.read_window(0, tokens, targets);
  tokens.push_back(targets.back());
  return tokens;
}

// Context 8 on parts shorter than a window, exactly one window and two windows long.
TEST(Windows, CountsReachTheLastToken) {
  for (const std::int64_t size : {5, 8}) {
    const TokenDataset data = counted(size);
    EXPECT_EQ(data.training().window_count(8), 0);
    EXPECT_EQ(data.training().windows_per_epoch(8), 0);
    EXPECT_THAT([&] { data.training().window_start(8, 1, 0); },
                ThrowsMessage<std::invalid_argument>(HasSubstr("at least 9 tokens")));
  }
  const TokenDataset nine = counted(9);
  EXPECT_EQ(nine.training().window_count(8), 1);
  for (std::int64_t i = 0; i < 100; ++i) EXPECT_EQ(nine.training().window_start(8, 1, i), 0);
  std::vector<std::int32_t> tokens(8), targets(8);
  nine.training().read_window(0, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(targets, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
  const TokenDataset ten = counted(10);
  EXPECT_EQ(ten.training().window_count(8), 2);
  std::set<std::int64_t> starts;
  for (std::int64_t i = 0; i < 100; ++i) starts.insert(ten.training().window_start(8, 1, i));
  EXPECT_THAT(starts, ElementsAre(0, 1));
}

TEST(Windows, PastTheEndAreIgnoredTargets) {
  const TokenDataset data = counted(10);
  std::vector<std::int32_t> tokens(4), targets(4);
  data.training().read_window(7, tokens, targets);
  EXPECT_THAT(tokens, ElementsAre(7, 8, 0, 0));
  EXPECT_THAT(targets, ElementsAre(8, 9, -1, -1));
  EXPECT_THROW(data.training().read_window(9, tokens, targets), std::invalid_argument);
  EXPECT_THROW(data.training().read_window(-1, tokens, targets), std::invalid_argument);
}

TEST(Windows, AnEpochSeesEveryTokenOnce) {
  for (const std::int64_t size : {17, 18, 100, 1003, 4096}) {
    const TokenPart part = counted(size).training();
    const std::int64_t ctx = 8, count = part.windows_per_epoch(ctx);
    for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> starts;
      for (std::int64_t i = 0; i < count; ++i) starts.insert(part.window_start(ctx, 5, epoch * count + i));
      ASSERT_EQ(static_cast<std::int64_t>(starts.size()), count) << size;
      EXPECT_LT(*starts.begin(), ctx);
      EXPECT_EQ(*starts.rbegin(), *starts.begin() + (count - 1) * ctx);  // end to end
      EXPECT_LE(*starts.rbegin() + ctx, size - 1);                       // the last target exists
    }
  }
}

TEST(Windows, OrderDiffersByEpochAndSeedAndNothingElse) {
  const TokenPart part = counted(20000).training();
  const std::int64_t count = part.windows_per_epoch(16);
  const auto order = [&](std::uint64_t seed, std::int64_t epoch) {
    std::vector<std::int64_t> starts;
    for (std::int64_t i = 0; i < count; ++i) starts.push_back(part.window_start(16, seed, epoch * count + i));
    return starts;
  };
  EXPECT_EQ(order(1, 0), order(1, 0));
  EXPECT_NE(order(1, 0), order(1, 1));
  EXPECT_NE(order(1, 0), order(2, 0));
  std::vector<std::int64_t> sorted = order(1, 0);
  EXPECT_FALSE(std::is_sorted(sorted.begin(), sorted.end()));
}

TEST(TokenDataset, RoundTripsThroughAFile) {
  const TestDirectory directory;
  const std::string text = std::string("a\0b\xFF\n", 5) + "end of it\n";
  const Corpus corpus = Corpus::from_text(text, 0.5);
  const std::string path = directory / "tokens.bin";
  const TokenDataset data = TokenDataset::tokenize(corpus, Tokenizer::bytes(), path);
  EXPECT_EQ(data.vocab_size(), Tokenizer::bytes().size());
  EXPECT_EQ(data.source_checksum(), corpus.checksum());
  EXPECT_EQ(data.training().bytes() + data.validation().bytes(), 15);
  std::string back = Tokenizer::bytes().decode(all_tokens(data.training()));
  back += Tokenizer::bytes().decode(all_tokens(data.validation()));
  EXPECT_EQ(back, text);
  const TokenDataset again = TokenDataset::open(path);
  EXPECT_EQ(all_tokens(again.training()), all_tokens(data.training()));
  EXPECT_EQ(again.validation().bytes(), data.validation().bytes());
  EXPECT_EQ(again.checksum(), data.checksum());
  EXPECT_EQ(again.cut(), corpus.bytes(CorpusPart::training));
  ASSERT_TRUE(again.tokenizer());
  EXPECT_EQ(again.tokenizer()->json(), Tokenizer::bytes().json());
}

// Chunks of JSON lines, many lines per chunk and many chunks, at any thread count.
TEST(TokenDataset, KeepsDocumentsApartInChunks) {
  const TestDirectory directory;
  std::vector<std::int32_t> wanted;
  std::ofstream lines(directory / "a.jsonl");
  for (int i = 0; i < 40000; ++i) {
    const std::string text = std::to_string(i) + (i % 3 ? "" : std::string(40, 'x'));
    lines << "{\"n\": 1, \"text\": \"" << text << "\"}\n";
    if (i > 0) wanted.push_back(256);
    wanted.insert(wanted.end(), text.begin(), text.end());
  }
  lines.close();
  CorpusOptions options;
  options.validation_fraction = 0;
  const Corpus corpus = Corpus::read({directory / "a.jsonl"}, options);
  ASSERT_GT(corpus.bytes(), 4 * 256 * 1024);
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    const TokenDataset data = TokenDataset::tokenize(corpus, Tokenizer::bytes(), directory / "tokens.bin");
    EXPECT_EQ(all_tokens(data.training()), wanted);
    EXPECT_EQ(data.document_count(), 40000);
  }
  set_num_threads(0);
}

TEST(TokenDataset, UsesFourBytesForALargeVocabulary) {
  const TestDirectory directory;
  TokenizerData wide = Tokenizer::bytes().data();
  for (int i = 257; i < 70000; ++i) wide.tokens.push_back(std::string("<").append(std::to_string(i)).append(">"));
  wide.added.push_back({.id = 69999, .content = wide.tokens[69999]});
  const TokenDataset data =
      TokenDataset::tokenize(Corpus::from_text("ab<69999>c", 0), Tokenizer::from_data(wide), directory / "tokens.bin");
  EXPECT_THAT(all_tokens(data.training()), ElementsAre('a', 'b', 69999, 'c'));
  std::vector<std::int32_t> two(2);
  data.training().read(1, two);
  EXPECT_THAT(two, ElementsAre('b', 69999));
  EXPECT_THROW(data.training().read(3, two), std::invalid_argument);
  EXPECT_THROW(data.training().read(-1, two), std::invalid_argument);
}

TEST(TokenDataset, RecognisesATokenFile) {
  const TestDirectory directory;
  TokenDataset::tokenize(Corpus::from_text("abc", 0), Tokenizer::bytes(), directory / "tokens.bin");
  std::ofstream(directory / "text") << "QKVTOKE";
  EXPECT_TRUE(TokenDataset::is_token_file(directory / "tokens.bin"));
  EXPECT_FALSE(TokenDataset::is_token_file(directory / "text"));
  EXPECT_FALSE(TokenDataset::is_token_file(directory / "missing"));
  EXPECT_FALSE(TokenDataset::is_token_file(directory.path()));
  EXPECT_FALSE(TokenDataset::is_token_file("-"));
}

// The format of older run directories: "ab", then "c" for validation, two bytes each.
TEST(TokenDataset, ReadsVersionOne) {
  const TestDirectory directory;
  std::string bytes("QKVTOKEN", 8);
  const auto put = [&](std::uint64_t value, std::size_t size) {
    bytes.append(reinterpret_cast<const char*>(&value), size);
  };
  put(1, 4), put(2, 4), put(257, 8), put(77, 8);
  const std::uint16_t tokens[] = {'a', 'b', 'c'};
  Checksum checksum;
  checksum.add(tokens, sizeof tokens);
  put(checksum.value(), 8), put(2, 8), put(1, 8), put(2, 8), put(1, 8);
  bytes.resize(128);
  bytes.append(reinterpret_cast<const char*>(tokens), sizeof tokens);
  std::ofstream(directory / "tokens.bin", std::ios::binary) << bytes;
  const TokenDataset data = TokenDataset::open(directory / "tokens.bin");
  EXPECT_THAT(all_tokens(data.training()), ElementsAre('a', 'b'));
  EXPECT_EQ(data.validation().size(), 1);
  EXPECT_EQ(data.source_checksum(), 77u);
  EXPECT_EQ(data.end_token(), -1);
  EXPECT_FALSE(data.tokenizer());
}

TEST(TokenDataset, MarksTheEndOfAFileWhenAnotherFollows) {
  const TestDirectory directory;
  std::ofstream(directory / "a") << "ab";
  std::ofstream(directory / "b") << "cd";
  std::ofstream(directory / "c.jsonl") << "{\"text\": \"ef\"}\n{\"text\": \"\"}\n{\"text\": \"g\"}\n";
  CorpusOptions options;
  options.validation_fraction = 0;
  const Corpus corpus = Corpus::read({directory / "a", directory / "b", directory / "c.jsonl"}, options);
  const TokenDataset data = TokenDataset::tokenize(corpus, Tokenizer::bytes(), directory / "tokens.bin");
  EXPECT_THAT(all_tokens(data.training()), ElementsAre('a', 'b', 256, 'c', 'd', 256, 'e', 'f', 256, 'g'));
  EXPECT_EQ(data.training().bytes(), 7);
  EXPECT_EQ(data.document_count(), 4);
  EXPECT_EQ(data.end_token(), 256);
  EXPECT_EQ(data.source_checksum(), corpus.checksum());
}

std::string lines_of_words(std::size_t bytes) {
  std::string text;
  const std::string words[] = {"in ",  "the beginning ", "was,\n",     "  indented",
                               "\n\n", "\xE6\xAD\xAA\n", "word.\nAnd "};
  for (std::size_t i = 0; text.size() < bytes; i = i * 5 + 3) text += words[i % 7];
  return text;
}

TEST(TokenDataset, PiecesMatchTheWhole) {
  const TestDirectory directory;
  const std::string text = lines_of_words(900000);  // four pieces
  const Tokenizer tokenizer = Tokenizer::train_bpe(text.substr(0, 20000), 300, {});
  std::int64_t told = 0;
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    const TokenDataset data = TokenDataset::tokenize(Corpus::from_text(text, 0), tokenizer, directory / "tokens.bin",
                                                     [&](std::int64_t done, std::int64_t) { told = done; });
    EXPECT_EQ(all_tokens(data.training()), tokenizer.encode(text));
    EXPECT_EQ(told, static_cast<std::int64_t>(text.size()));
  }
  set_num_threads(0);
}

class DamagedTokenFile : public testing::Test {
 protected:
  DamagedTokenFile() {
    TokenDataset::tokenize(Corpus::from_text("some text of thirty-two bytes ..", 0.25), Tokenizer::bytes(), path_);
    std::ifstream file(path_, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }
  void expect_refused(const std::string& bytes, const std::string& why) {
    const std::string path = directory_ / "damaged.bin";
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THAT([&] { TokenDataset::open(path); }, ThrowsMessage<FileError>(HasSubstr(why)));
  }
  std::string with(std::size_t at, std::uint64_t value, std::size_t size) const {
    std::string bytes = bytes_;
    std::memcpy(bytes.data() + at, &value, size);
    return bytes;
  }

  TestDirectory directory_;
  std::string path_ = directory_ / "tokens.bin", bytes_;
};

TEST_F(DamagedTokenFile, IsRefused) {
  const std::size_t tokenizer = Tokenizer::bytes().json().size();
  ASSERT_EQ(bytes_.size(), 128 + 32 * 2u + tokenizer);
  expect_refused("", "");
  expect_refused(bytes_.substr(0, 127), "header");
  expect_refused(bytes_.substr(0, bytes_.size() - 1), "do not fit");
  expect_refused(bytes_ + "x", "do not fit");
  expect_refused(with(0, 'X', 1), "QKVTOKEN");
  expect_refused(with(8, 3, 4), "version");
  for (const std::size_t at : {12, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120})
    expect_refused(with(at, 0x5A, 1), "header");
  expect_refused(with(130, 77, 2), "damaged");
  expect_refused(with(bytes_.size() - 9, '!', 1), "tokenizer");
}

// A header with a valid checksum but wrong contents.
TEST_F(DamagedTokenFile, IsRefusedIfItsHeaderIsWrong) {
  const auto sealed = [](std::string bytes) {
    Checksum checksum;
    checksum.add(bytes.data(), 120);
    const std::uint64_t sum = checksum.value();
    std::memcpy(bytes.data() + 120, &sum, sizeof sum);
    return bytes;
  };
  const auto lie = [&](std::size_t at, std::uint64_t value, std::size_t size) { return sealed(with(at, value, size)); };
  expect_refused(lie(12, 3, 4), "bytes per token");
  expect_refused(lie(16, 0, 8), "vocabulary");
  expect_refused(lie(16, std::uint64_t{1} << 40, 8), "vocabulary");
  expect_refused(lie(40, ~std::uint64_t{0}, 8), "do not fit");
  expect_refused(lie(48, ~std::uint64_t{0} - 20, 8), "do not fit");
  expect_refused(lie(56, ~std::uint64_t{0}, 8), "bytes");
  expect_refused(lie(72, 257, 8), "end token");
  expect_refused(lie(72, ~std::uint64_t{1}, 8), "end token");
  expect_refused(lie(96, ~std::uint64_t{0}, 8), "does not fit");
  expect_refused(lie(96, 1, 8), "fit");
  expect_refused(lie(104, 5, 8), "tokenizer");
  std::string small = with(16, 50, 8);  // a vocabulary of 50
  small.replace(72, 2, std::string("\x07\0", 2));
  expect_refused(sealed(small), "outside the vocabulary");
}

TEST(TokenDataset, RefusesIdsOutsideTheVocabulary) {
  EXPECT_THROW(TokenDataset::from_tokens({0, 5}, {}, 5), std::invalid_argument);
  EXPECT_THROW(TokenDataset::from_tokens({0}, {-1}, 5), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
