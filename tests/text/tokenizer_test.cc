// SPDX-License-Identifier: Apache-2.0
#include "qkv/tokenizer.h"

#include <gmock/gmock.h>

#include <thread>

#include "core/random.h"
#include "text/added_tokens.h"

namespace qkv {
namespace {

using testing::ElementsAre;

const std::string kText =
    "In the beginning God created the heaven and the earth. And the earth was without form, and void; and darkness was "
    "upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let there be "
    "light: and there was light. And God saw the light, that it was good: and God divided the light from the darkness.";

std::string random_bytes(std::uint64_t seed, std::uint64_t length) {
  const Random random(seed);
  std::string bytes;
  for (std::uint64_t i = 0; i < length; ++i) bytes += static_cast<char>(random.below(i, 256));
  return bytes;
}

TEST(Tokenizer, BytesAreThemselves) {
  const Tokenizer bytes = Tokenizer::bytes();
  EXPECT_EQ(bytes.size(), 257);
  EXPECT_EQ(bytes.end_token(), 256);
  EXPECT_THAT(bytes.encode(std::string("a\0\xFF", 3)), ElementsAre(97, 0, 255));
  EXPECT_THAT(bytes.encode(""), ElementsAre());
  EXPECT_EQ(bytes.decode(97), "a");
  EXPECT_EQ(bytes.decode(256), "<|endoftext|>");
  EXPECT_THROW(bytes.decode(257), std::invalid_argument);
  EXPECT_THROW(bytes.decode(-1), std::invalid_argument);
}

TEST(Tokenizer, EverySequenceOfBytesRoundTrips) {
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), Tokenizer::train_bpe(kText, 320, {})})
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      const std::string text = random_bytes(seed, seed);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << seed;
    }
}

// ggml-org/llama.cpp #8691: partial and invalid UTF-8.
TEST(Tokenizer, InvalidUtf8RoundTrips) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {});
  for (const char* text : {"\xE6\xAD", "\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "the \xE6\xAD light"})
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(Tokenizer, TrainedTokensShortenTheText) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {});
  EXPECT_LE(tokenizer.size(), 300);
  const std::vector<std::int32_t> ids = tokenizer.encode(kText);
  EXPECT_LT(ids.size() * 3, kText.size() * 2);
  EXPECT_EQ(tokenizer.decode(ids), kText);
  // Cached and new pieces are encoded the same way.
  std::vector<std::int32_t> twice = tokenizer.encode(kText + kText);
  const std::vector<std::int32_t> again = tokenizer.encode(kText);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), twice.begin()));
  EXPECT_TRUE(std::equal(again.begin(), again.end(), twice.begin() + static_cast<std::ptrdiff_t>(again.size())));
}

// More pieces than the cache holds, of lengths around its limit, repeated many times.
TEST(TextEncoder, MatchesTheTokenizer) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {});
  const Random random(3);
  std::uint64_t draw = 0;
  std::string text;
  while (text.size() < 2'000'000) {
    text += ' ';
    for (std::uint64_t n = 1 + random.below(draw++, 18); n > 0; --n) text += "thegod"[random.below(draw++, 6)];
  }
  TextEncoder encoder(tokenizer);
  std::vector<std::int32_t> ids, again;
  encoder.encode(text, ids);
  encoder.encode(text, again);
  EXPECT_EQ(ids, again);
  EXPECT_EQ(ids, tokenizer.encode(text));
  std::vector<std::int32_t> piece_by_piece;  // each too short for the cache
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(' ', at + 1), text.size());
    const std::vector<std::int32_t> piece = tokenizer.encode(text.substr(at, end - at));
    piece_by_piece.insert(piece_by_piece.end(), piece.begin(), piece.end());
    at = end;
  }
  EXPECT_EQ(ids, piece_by_piece);
}

// Pieces of every length at the very end of readable memory.
TEST(TextEncoder, ReadsNothingPastTheText) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {});
  TextEncoder encoder(tokenizer);
  for (std::size_t length = 1; length <= 40; ++length) {
    const std::vector<char> exact(kText.begin(), kText.begin() + static_cast<std::ptrdiff_t>(length));
    std::vector<std::int32_t> ids;
    encoder.encode({exact.data(), exact.size()}, ids);
    EXPECT_EQ(tokenizer.decode(ids), kText.substr(0, length));
  }
}

TEST(Tokenizer, ReportsTrainingProgress) {
  struct Seen {
    std::int64_t last = 0;
    static void report(void* self, std::int64_t done, std::int64_t) { static_cast<Seen*>(self)->last = done; }
  } seen;
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {Seen::report, &seen});
  EXPECT_EQ(seen.last, tokenizer.size());
  EXPECT_THROW(Tokenizer::train_bpe(kText, 256, {}), std::invalid_argument);
}

// ggml-org/llama.cpp #12743: the text of a control token in user input.
TEST(Tokenizer, ControlTokensAreEncodedOnlyOnRequest) {
  for (const Tokenizer& tokenizer : {Tokenizer::bytes(), Tokenizer::train_bpe(kText, 300, {})}) {
    const std::string text = "a<|endoftext|>b";
    for (const std::int32_t id : tokenizer.encode(text)) EXPECT_NE(id, tokenizer.end_token());
    EXPECT_THAT(tokenizer.encode(text, SpecialTokens::as_ids), ElementsAre(97, 256, 98));
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, SpecialTokens::as_ids)), text);
  }
}

TEST(Tokenizer, IsThreadSafe) {
  const Tokenizer tokenizer = Tokenizer::train_bpe(kText, 300, {});
  const std::vector<std::int32_t> wanted = tokenizer.encode(kText);
  std::vector<std::thread> threads;
  std::vector<int> good(4, 0);
  for (int& ok : good)
    threads.emplace_back([&tokenizer, &wanted, &ok] {
      for (int i = 0; i < 20; ++i) ok += tokenizer.encode(kText) == wanted;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(good, ElementsAre(20, 20, 20, 20));
}

std::vector<std::string> found(const AddedTokens& tokens, std::string_view text) {
  std::vector<std::string> list;
  tokens.split(text, [&](std::string_view part, const AddedToken* token) {
    if (token) list.emplace_back(part);
  });
  return list;
}

TEST(AddedTokens, TheLeftmostThenTheLongest) {
  const std::vector<AddedToken> tokens{
      {.id = 1, .content = "ab"}, {.id = 2, .content = "abc"}, {.id = 3, .content = "bc"}};
  EXPECT_THAT(found(AddedTokens(tokens, false), "xabcab bc"), ElementsAre("abc", "ab", "bc"));
}

TEST(AddedTokens, StripsSpacesAroundIt) {
  EXPECT_THAT(found(AddedTokens({{.id = 1, .content = "<m>", .lstrip = true}}, false), "a \u2003<m> b"),
              ElementsAre(" \u2003<m>"));
  EXPECT_THAT(found(AddedTokens({{.id = 1, .content = "<m>", .rstrip = true}}, false), "a <m> \nb"),
              ElementsAre("<m> \n"));
  EXPECT_THAT(found(AddedTokens({{.id = 1, .content = "<m>"}}, false), "a <m> b"), ElementsAre("<m>"));
}

TEST(AddedTokens, MatchesOnlyWholeWordsIfRequested) {
  const AddedTokens tokens({{.id = 1, .content = "cat", .single_word = true}}, false);
  EXPECT_THAT(found(tokens, "cat cats xcat écat cat_ cat!"), ElementsAre("cat", "cat"));
  EXPECT_THAT(found(tokens,
                    "\xFF"
                    "cat\xFF"),
              ElementsAre("cat"));
}

TEST(AddedTokens, SpecialOnesOnRequest) {
  const std::vector<AddedToken> tokens{{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<t>"}};
  EXPECT_THAT(found(AddedTokens(tokens, false), "<s><t>"), ElementsAre("<t>"));
  EXPECT_THAT(found(AddedTokens(tokens, true), "<s><t>"), ElementsAre("<s>", "<t>"));
}

}  // namespace
}  // namespace qkv
