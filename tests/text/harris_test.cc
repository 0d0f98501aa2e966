// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>

#include "core/random.h"
#include "qkv/tokenizer.h"
#include "text/harris_encoder.h"
#include "text/harris_trainer.h"

namespace qkv {
namespace {

using testing::ElementsAre;

// A language of three stems and three endings, in all combinations. Any ending may follow a stem and any stem may
// precede an ending, so stems and endings are the segments found.
TEST(Harris, FindsStemsAndEndings) {
  std::string text;
  for (const char* stem : {"walk", "jump", "rest"})
    for (const char* ending : {"ing", "ed", "s", "able"})
      for (int i = 0; i < 5; ++i) text += std::string(text.empty() ? "" : "\n") + stem + ending;
  const TokenizerData data = train_harris_data(text, 1000);
  const std::vector<std::string> segments(data.tokens.begin(), data.tokens.end() - 257);
  for (const char* morpheme : {"walk", "jump", "rest", "ing", "ed", "able"})
    EXPECT_THAT(segments, testing::Contains(morpheme));
  for (const std::string& segment : segments) EXPECT_GT(segment.size(), 1u);
  EXPECT_THAT(segments, testing::Not(testing::Contains("walki")));
  EXPECT_EQ(train_harris_data(text, 260).tokens.size(), 260u);
  EXPECT_EQ(train_harris_data(text, 257).tokens.size(), 257u);
  EXPECT_THROW(train_harris_data(text, 256), std::invalid_argument);
}

TEST(Harris, MatchesTheLongestSegmentFirst) {
  const Tokenizer tokenizer = Tokenizer::from_data(harris_data({"the", "there", "re", "a"}));
  EXPECT_EQ(tokenizer.size(), 4 + 257);
  EXPECT_EQ(tokenizer.end_token(), 4 + 256);
  EXPECT_THAT(tokenizer.encode("there"), ElementsAre(1));
  EXPECT_THAT(tokenizer.encode("thera"), ElementsAre(0, 4 + 'r', 3));  // a one-byte segment has priority over the byte
  EXPECT_THAT(tokenizer.encode("\xFFre"), ElementsAre(4 + 255, 2));
  EXPECT_THAT(tokenizer.encode("<|endoftext|>", SpecialTokens::as_ids), ElementsAre(260));
  EXPECT_THROW(HarrisEncoder(harris_data({"ab", "ab"})), std::invalid_argument);
}

TEST(Harris, EveryByteStringRoundTrips) {
  const Tokenizer tokenizer = Tokenizer::train_harris("the thing that they think through, the thin thing\n", 300);
  const Random random(5);
  for (std::uint64_t round = 0; round < 200; ++round) {
    std::string text;
    for (std::uint64_t i = 0; i < 40; ++i)
      text += random.below(100 * round + i, 2) ? static_cast<char>(random.bits(100 * round + i)) : "thin "[i % 5];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

}  // namespace
}  // namespace qkv
