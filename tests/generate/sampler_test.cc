// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "qkv/sampler.h"

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

qkv::SamplerOptions plain(std::uint64_t seed = 0) {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = seed};
}
qkv::SamplerOptions greedy() {
  qkv::SamplerOptions options;
  options.temperature = 0;
  return options;
}
std::int32_t once(const qkv::SamplerOptions& options, const std::vector<float>& logits,
                  const std::vector<std::int32_t>& history = {}) {
  return qkv::Sampler(options).sample(logits, history);
}
// How often each token occurs in `count` samples.
std::map<std::int32_t, int> draws(const qkv::SamplerOptions& options, const std::vector<float>& logits, int count) {
  qkv::Sampler sampler(options);
  std::map<std::int32_t, int> result;
  for (int i = 0; i < count; ++i) ++result[sampler.sample(logits)];
  return result;
}
std::set<std::int32_t> drawn(const qkv::SamplerOptions& options, const std::vector<float>& logits) {
  std::set<std::int32_t> result;
  for (const auto& [id, count] : draws(options, logits, 2000)) result.insert(id);
  return result;
}

// Reported bug R38: temperature 0 divides by zero.
TEST(Sampler, TemperatureZeroIsGreedyAndTiesGoToTheLowestId) {
  EXPECT_EQ(once(greedy(), {1, 3, 2}), 1);
  EXPECT_EQ(once(greedy(), {5, 5, 5, 5}), 0);
  EXPECT_EQ(once(greedy(), {1, 3, 3}), 1);
  EXPECT_EQ(once(greedy(), {1, kInf, 2, kInf}), 1);
  EXPECT_EQ(once(greedy(), {-kInf, -kInf, -7}), 2);
  for (const std::int64_t top_k : {0, 1, 3, 1000}) {
    qkv::SamplerOptions options = greedy();
    options.top_k = top_k;
    EXPECT_EQ(once(options, {1, 3, 2}), 1) << top_k;
  }
}

TEST(Sampler, TopKOfZeroOrMoreThanTheVocabularyMeansAll) {
  for (const std::int64_t top_k : {std::int64_t{0}, std::int64_t{3}, std::int64_t{4}, INT64_MAX}) {
    qkv::SamplerOptions options = plain();
    options.top_k = top_k;
    EXPECT_THAT(drawn(options, {1, 1, 1}), testing::ElementsAre(0, 1, 2)) << top_k;
  }
}

TEST(Sampler, TopKKeepsTheHighestAndTiesGoToTheLowestIds) {
  qkv::SamplerOptions options = plain();
  options.top_k = 2;
  EXPECT_THAT(drawn(options, {1, 3, 2, 2.5F}), testing::ElementsAre(1, 3));
  EXPECT_THAT(drawn(options, {4, 4, 4, 4}), testing::ElementsAre(0, 1));
  options.top_k = 1;
  EXPECT_THAT(drawn(options, {1, 3, 2}), testing::ElementsAre(1));
}

TEST(Sampler, OneInfiniteLogitTakesAllAndTwoShare) {
  EXPECT_THAT(drawn(plain(), {1, kInf, 2}), testing::ElementsAre(1));
  EXPECT_THAT(drawn(plain(), {kInf, 1, kInf}), testing::ElementsAre(0, 2));
  EXPECT_THAT(drawn(qkv::SamplerOptions{}, {kInf, 1, kInf}), testing::ElementsAre(0, 2));
}

TEST(Sampler, MinusInfinityIsNeverSampledEvenWithoutFilters) {
  qkv::SamplerOptions options = plain();
  options.temperature = 1e30;
  EXPECT_THAT(drawn(options, {-kInf, 0, -kInf, -50}), testing::ElementsAre(1, 3));
}

TEST(Sampler, NothingToSampleIsATypedError) {
  for (const qkv::SamplerOptions& options : {plain(), greedy()}) {
    EXPECT_THROW(once(options, {1, std::nanf(""), 2}), qkv::SamplingError);
    EXPECT_THROW(once(options, {-kInf, -kInf}), qkv::SamplingError);
    EXPECT_THROW(once(options, {}), std::invalid_argument);
  }
}

TEST(Sampler, FrequenciesMatchTheSoftmax) {
  // ln 1, ln 2, ln 5: probabilities 1/8, 2/8, 5/8.
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};
  const int count = 40000;
  auto found = draws(plain(7), logits, count);
  EXPECT_NEAR(found[0], count / 8, 300);  // 4.5 standard deviations
  EXPECT_NEAR(found[1], count * 2 / 8, 400);
  EXPECT_NEAR(found[2], count * 5 / 8, 450);
  // Temperature 1/2 squares the odds: 1, 4, 25.
  qkv::SamplerOptions options = plain(7);
  options.temperature = 0.5;
  found = draws(options, logits, count);
  EXPECT_NEAR(found[0], count / 30, 170);
  EXPECT_NEAR(found[1], count * 4 / 30, 320);
}

TEST(Sampler, TopPKeepsTheSmallestSetThatReachesIt) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};  // 1/8, 2/8, 5/8
  qkv::SamplerOptions options = plain();
  options.top_p = 0.6;  // 5/8 is enough
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(2));
  options.top_p = 0.7;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 2));
  options.top_p = 0.9;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(0, 1, 2));
  options.top_p = 0;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(2));
}

TEST(Sampler, MinPIsRelativeToTheMostProbable) {
  const std::vector<float> logits = {0, std::log(2.0F), std::log(5.0F)};  // 0.2, 0.4, 1 of the best
  qkv::SamplerOptions options = plain();
  options.min_p = 0.3;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 2));
  options.min_p = 0.5;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(2));
  options.min_p = 1;
  EXPECT_THAT(drawn(options, {3, 3, 1}), testing::ElementsAre(0, 1));
}

TEST(Sampler, RepeatPenaltyDividesPositiveAndMultipliesNegativeLogitsOnce) {
  qkv::SamplerOptions options = greedy();
  options.repeat_penalty = 2;
  EXPECT_EQ(once(options, {3, 2}, {0}), 1);          // 1.5 < 2
  EXPECT_EQ(once(options, {3, 1}, {0, 0, 0}), 0);    // 1.5 > 1: once, not three times
  EXPECT_EQ(once(options, {-1, -1.5F}, {0}), 1);     // -2 < -1.5
  EXPECT_EQ(once(options, {3, 2}, {-1, 2, 99}), 0);  // ids that do not exist
  options.repeat_penalty = 1;
  EXPECT_EQ(once(options, {3, 2}, {0}), 0);
}

// For logits ln 0.1, ln 0.2 and ln 0.7: entropy 0.802; -ln p = 2.303, 1.609, 0.357.
TEST(Sampler, TypicalKeepsThoseNearestToTheEntropy) {
  const std::vector<float> logits = {std::log(0.1F), std::log(0.2F), std::log(0.7F)};
  qkv::SamplerOptions options = plain();
  options.typical_p = 0;  // distances 1.501, 0.807, 0.445
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(2));
  options.typical_p = 0.8;
  EXPECT_THAT(drawn(options, logits), testing::ElementsAre(1, 2));
  // Of the probabilities 0.4, 0.3, 0.2, 0.1 (entropy 1.280), the second (1.204) is the most typical.
  const std::vector<float> four = {std::log(0.4F), std::log(0.3F), std::log(0.2F), std::log(0.1F)};
  options.typical_p = 0.2;
  EXPECT_THAT(drawn(options, four), testing::ElementsAre(1));
}

TEST(Sampler, FrequencyCountsAndPresenceDoesNot) {
  qkv::SamplerOptions options = greedy();
  options.frequency_penalty = 0.5;
  EXPECT_EQ(once(options, {3, 1.75F}, {0, 0}), 0);     // 2 > 1.75
  EXPECT_EQ(once(options, {3, 1.75F}, {0, 0, 0}), 1);  // 1.5 < 1.75
  options.frequency_penalty = 0;
  options.presence_penalty = 1;
  EXPECT_EQ(once(options, {3, 1.75F}, {0, 0, 0}), 0);  // 2 > 1.75
  options.repeat_penalty = 2;
  EXPECT_EQ(once(options, {3, 0.75F}, {0}), 1);  // 3 / 2 - 1 = 0.5
}

TEST(Sampler, PenaltiesSeeOnlyTheLastTokens) {
  qkv::SamplerOptions options = greedy();
  options.presence_penalty = 2;
  options.repeat_last_n = 2;
  EXPECT_EQ(once(options, {3, 2}, {0, 1, 1}), 0);
  EXPECT_EQ(once(options, {3, 2}, {1, 0, 7}), 1);
  options.repeat_last_n = 0;
  EXPECT_EQ(once(options, {3, 2}, {0}), 0);
  std::vector<std::int32_t> far(200, 1);
  far[0] = 0;
  options.repeat_last_n = 64;
  EXPECT_EQ(once(options, {3, 2.5F}, far), 0);
  options.repeat_last_n = -1;
  EXPECT_EQ(once(options, {3, 1.5F, 2}, far), 2);
}

TEST(Sampler, BiasIsAddedAndMinusInfinityBans) {
  qkv::SamplerOptions options = greedy();
  options.logit_bias = {{0, 1.5}, {0, 1}, {5, 100}};
  EXPECT_EQ(once(options, {1, 3, 2}), 0);
  options.logit_bias = {{1, -HUGE_VAL}};
  EXPECT_EQ(once(options, {1, kInf, 2}), 2);
  options.logit_bias = {{0, -HUGE_VAL}, {1, -HUGE_VAL}};
  EXPECT_THROW(once(options, {1, 2}), qkv::SamplingError);
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndAnotherSeedOthers) {
  const std::vector<float> logits(50, 0.0F);
  const auto sequence = [&](std::uint64_t seed) {
    qkv::Sampler sampler(plain(seed));
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 20; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(sequence(1), sequence(1));
  EXPECT_NE(sequence(1), sequence(2));
}

TEST(Sampler, RefusesInvalidOptions) {
  const auto refused = [](auto change) {
    qkv::SamplerOptions options;
    change(options);
    EXPECT_THROW(qkv::Sampler{options}, std::invalid_argument);
  };
  const double nan = std::nan("");
  for (const double value : {-1.0, nan, HUGE_VAL}) refused([&](auto& o) { o.temperature = value; });
  for (const double value : {-0.1, 1.1, nan}) refused([&](auto& o) { o.top_p = value; });
  for (const double value : {-0.1, 1.1, nan}) refused([&](auto& o) { o.min_p = value; });
  for (const double value : {0.0, -1.0, nan, HUGE_VAL}) refused([&](auto& o) { o.repeat_penalty = value; });
  refused([](auto& o) { o.top_k = -1; });
  for (const double value : {-0.1, 1.1, nan}) refused([&](auto& o) { o.typical_p = value; });
  for (const double value : {nan, HUGE_VAL}) refused([&](auto& o) { o.frequency_penalty = value; });
  for (const double value : {nan, -HUGE_VAL}) refused([&](auto& o) { o.presence_penalty = value; });
  refused([](auto& o) { o.repeat_last_n = -2; });
  for (const double value : {nan, HUGE_VAL}) refused([&](auto& o) { o.logit_bias = {{1, value}}; });
  refused([](auto& o) { o.logit_bias = {{-1, 1}}; });
}

}  // namespace
