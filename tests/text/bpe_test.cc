// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "core/random.h"
#include "text/bpe_encoder.h"
#include "text/bpe_trainer.h"
#include "text/splitter.h"

namespace qkv {
namespace {

using testing::ElementsAre;

using Ids = std::vector<std::int32_t>;

// Bytes, no end token, and the given merges, each as a pair of strings, in order.
TokenizerData with_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
  TokenizerData data;
  for (int b = 0; b < 256; ++b) data.tokens.emplace_back(1, static_cast<char>(b));
  const auto id = [&](const std::string& bytes) {
    const auto found = std::find(data.tokens.begin(), data.tokens.end(), bytes);
    if (found != data.tokens.end()) return static_cast<std::int32_t>(found - data.tokens.begin());
    data.tokens.push_back(bytes);
    return static_cast<std::int32_t>(data.tokens.size()) - 1;
  };
  for (const auto& [left, right] : merges) data.merges.push_back({id(left), id(right), id(left + right)});
  return data;
}

std::vector<std::string> encoded(const TokenizerData& data, std::string_view piece) {
  Ids ids;
  BpeEncoder(data).encode(piece, ids);
  std::vector<std::string> tokens;
  for (const std::int32_t id : ids) tokens.push_back(data.tokens[static_cast<std::size_t>(id)]);
  return tokens;
}

// The same by the definition: repeatedly merges the leftmost pair of the highest priority.
Ids naive_encode(const TokenizerData& data, std::string_view piece) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::pair<std::size_t, std::int32_t>> ranks;
  for (std::size_t r = 0; r < data.merges.size(); ++r)
    ranks[{data.merges[r].left, data.merges[r].right}] = {r, data.merges[r].result};
  Ids ids;
  for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
  for (;;) {
    std::size_t best = data.merges.size(), where = 0;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = ranks.find({ids[i], ids[i + 1]});
      if (found != ranks.end() && found->second.first < best) {
        best = found->second.first;
        where = i;
      }
    }
    if (best == data.merges.size()) return ids;
    ids[where] = data.merges[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(where) + 1);
  }
}

TEST(BpeEncoder, MergesTheMostUrgentPairFirst) {
  const TokenizerData data = with_merges({{"b", "c"}, {"a", "b"}, {"a", "bc"}, {"ab", "c"}});
  EXPECT_THAT(encoded(data, "abc"), ElementsAre("abc"));  // a+bc, not ab+c
  EXPECT_THAT(encoded(data, "abab"), ElementsAre("ab", "ab"));
  EXPECT_THAT(encoded(data, "abcab"), ElementsAre("abc", "ab"));
  EXPECT_THAT(encoded(data, ""), ElementsAre());
  EXPECT_THAT(encoded(data, "x"), ElementsAre("x"));
}

TEST(BpeEncoder, MergesFromTheLeft) {
  const TokenizerData data = with_merges({{"a", "a"}});
  EXPECT_THAT(encoded(data, "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(encoded(data, "aaaaa"), ElementsAre("aa", "aa", "a"));
}

// ggml-org/llama.cpp PR #7193: a whole word in the vocabulary that merges cannot form.
TEST(BpeEncoder, HonoursIgnoreMerges) {
  TokenizerData data = with_merges({{"b", "c"}});
  data.tokens.push_back("abc");
  EXPECT_THAT(encoded(data, "abc"), ElementsAre("a", "bc"));
  data.ignore_merges = true;
  EXPECT_THAT(encoded(data, "abc"), ElementsAre("abc"));
  EXPECT_THAT(encoded(data, "abcabc"), ElementsAre("a", "bc", "a", "bc"));
  data.added.push_back({.id = 257, .content = "abc", .special = true});  // control tokens are not words
  EXPECT_THAT(encoded(data, "abc"), ElementsAre("a", "bc"));
}

TEST(BpeEncoder, RefusesInvalidData) {
  TokenizerData missing = with_merges({});
  missing.tokens[7] = "xx";
  EXPECT_THROW(BpeEncoder{missing}, std::invalid_argument);
  TokenizerData twice = with_merges({{"a", "b"}, {"a", "b"}});
  EXPECT_THROW(BpeEncoder{twice}, std::invalid_argument);
  TokenizerData outside = with_merges({{"a", "b"}});
  outside.merges[0].result = 257;
  EXPECT_THROW(BpeEncoder{outside}, std::invalid_argument);
}

// Text over few letters, so that pairs overlap and merges chain.
std::string letters(std::uint64_t seed, std::uint64_t length, std::uint64_t kinds) {
  const Random random(seed);
  std::string text;
  for (std::uint64_t i = 0; i < length; ++i) text += "ab cd'\xFF"[random.below(i, kinds)];
  return text;
}

TEST(BpeEncoder, AgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const TokenizerData data = train_bpe_data(letters(seed, 2000, 2 + seed % 6), 257 + 40, {});
    for (std::uint64_t round = 0; round < 20; ++round) {
      const std::string piece = letters(seed * 100 + round + 1000, 1 + round * 7, 2 + seed % 6);
      Ids ids;
      BpeEncoder(data).encode(piece, ids);
      ASSERT_EQ(ids, naive_encode(data, piece)) << seed << " " << piece;
    }
  }
}

// The trainer by the definition: recounts everything for each merge.
TokenizerData naive_train(const std::string& text, std::size_t size) {
  TokenizerData data = byte_tokenizer_data();
  std::vector<Ids> pieces;
  Splitter({std::string(kGpt2Pattern)}).split(text, [&](std::string_view piece) {
    Ids ids;
    for (const char byte : piece) ids.push_back(static_cast<unsigned char>(byte));
    pieces.push_back(ids);
  });
  while (data.tokens.size() < size) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> counts;
    for (const Ids& ids : pieces)
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) ++counts[{ids[i], ids[i + 1]}];
    std::pair<std::int32_t, std::int32_t> best;
    std::int64_t most = 1;
    for (const auto& [pair, count] : counts)  // in order, so the lowest of the most frequent pairs wins
      if (count > most) {
        best = pair;
        most = count;
      }
    if (most < 2) break;
    const std::string joined =
        data.tokens[static_cast<std::size_t>(best.first)] + data.tokens[static_cast<std::size_t>(best.second)];
    auto known = std::find(data.tokens.begin(), data.tokens.end(), joined);
    const auto result = static_cast<std::int32_t>(known - data.tokens.begin());
    if (known == data.tokens.end()) data.tokens.push_back(joined);
    data.merges.push_back({best.first, best.second, result});
    for (Ids& ids : pieces)
      for (std::size_t i = 0; i + 1 < ids.size(); ++i)
        if (ids[i] == best.first && ids[i + 1] == best.second) {
          ids[i] = result;
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
  }
  return data;
}

void expect_same(const TokenizerData& got, const TokenizerData& wanted) {
  ASSERT_EQ(got.tokens, wanted.tokens);
  ASSERT_EQ(got.merges.size(), wanted.merges.size());
  for (std::size_t i = 0; i < got.merges.size(); ++i) {
    ASSERT_EQ(got.merges[i].left, wanted.merges[i].left) << i;
    ASSERT_EQ(got.merges[i].right, wanted.merges[i].right) << i;
    ASSERT_EQ(got.merges[i].result, wanted.merges[i].result) << i;
  }
}

TEST(BpeTrainer, AgreesWithTheDefinition) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::string text = letters(seed, 300 + seed * 20, 1 + seed % 7);
    expect_same(train_bpe_data(text, 257 + 120, {}), naive_train(text, 257 + 120));
    if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed;
  }
}

TEST(BpeTrainer, MatchesAHandWorkedExample) {
  // low x 5, " low" does not occur; pieces: "low" 1, " low" 1, " lower" 1, " lowest" 1. The pairs l-o and o-w occur
  // four times each; 'l' is below 'o', so l-o is first; then lo-w; then ' '-low three times; " low"-e twice.
  const TokenizerData data = train_bpe_data("low low lower lowest", 1000, {});
  EXPECT_THAT(std::vector<std::string>(data.tokens.begin() + 257, data.tokens.end()),
              ElementsAre("lo", "low", " low", " lowe"));
  EXPECT_EQ(data.end_token, 256);
  EXPECT_EQ(data.tokens[256], "<|endoftext|>");
}

TEST(BpeTrainer, CountsEveryAdjacentPairAndMergesFromTheLeft) {
  // "aaaaa": a-a occurs in four places; (aa)(aa)a; then aa-aa and aa-a occur once each, so training stops.
  const TokenizerData data = train_bpe_data("aaaaa", 300, {});
  EXPECT_THAT(std::vector<std::string>(data.tokens.begin() + 257, data.tokens.end()), ElementsAre("aa"));
}

TEST(BpeTrainer, StopsAtTheSizeAndReportsProgress) {
  const std::string text = letters(1, 20000, 6);
  std::vector<std::int64_t> reports;
  const TokenizerData data = train_bpe_data(text, 400, [&](std::int64_t done, std::int64_t total) {
    reports.push_back(done);
    EXPECT_EQ(total, 400);
  });
  EXPECT_EQ(data.tokens.size(), 400u);
  ASSERT_FALSE(reports.empty());
  EXPECT_TRUE(std::is_sorted(reports.begin(), reports.end()));
  EXPECT_EQ(reports.back(), 400);
  EXPECT_EQ(train_bpe_data("", 300, {}).tokens.size(), 257u);
  EXPECT_EQ(train_bpe_data(text, 257, {}).tokens.size(), 257u);
  EXPECT_THROW(train_bpe_data(text, 256, {}), std::invalid_argument);
}

TEST(BpeEncoder, BytesWithoutATokenAreDroppedIfAllowed) {
  TokenizerData data;
  data.tokens = {"a", "b", "ab", "<x>"};
  data.merges = {{0, 1, 2}};
  EXPECT_THROW(BpeEncoder{data}, std::invalid_argument);
  data.drop_unknown_bytes = true;
  const BpeEncoder encoder(data);
  EXPECT_TRUE(encoder.merges());
  std::vector<std::int32_t> ids;
  encoder.encode("za\1b", ids);  // a dropped byte does not split its neighbours
  encoder.encode("zz", ids);
  encoder.encode(std::string(60, 'z') + "a" + std::string(60, 'b'), ids);
  std::vector<std::int32_t> expected{2, 2};
  expected.insert(expected.end(), 59, 1);
  EXPECT_EQ(ids, expected);
  data.merges.clear();
  EXPECT_TRUE(BpeEncoder{data}.merges());
}

}  // namespace
}  // namespace qkv
