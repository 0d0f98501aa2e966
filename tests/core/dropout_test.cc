// SPDX-License-Identifier: Apache-2.0
#include "core/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace qkv {
namespace {

TEST(Dropout, HasTheThresholdAndScaleOfItsProbability) {
  EXPECT_FALSE(Dropout());
  EXPECT_FALSE(Dropout(0, 1));
  EXPECT_EQ(Dropout(0.5, 1).threshold, 1u << 31);
  EXPECT_EQ(Dropout(0.5, 1).scale, 2);
  EXPECT_EQ(Dropout(std::nextafter(1.0, 0.0), 1).threshold, ~0u);
  EXPECT_TRUE(Dropout(0, 1).keeps(7));
}

TEST(Dropout, IsAWordOfABlock) {
  const Dropout d(0.5, 42);
  const Random random(42), pairs(42, std::uint64_t{1} << 32 | 6);
  EXPECT_EQ(d.keeps(0), random.block(0)[0] >= 1u << 31);
  EXPECT_EQ(d.keeps(64 * 3 + 16 * 2 + 5), random.block(16 * 3 + 5)[2] >= 1u << 31);
  EXPECT_EQ(d.keeps_pair(6, 9, 4 * 100 + 3), pairs.block(std::uint64_t{100} << 32 | 9)[3] >= 1u << 31);
}

// Neighbours along every axis agree in half of the cases, as independent bits do.
TEST(Dropout, NeighboursAreIndependent) {
  const Dropout d(0.5, 1), other(0.5, 2);
  int same[4] = {};
  constexpr std::uint32_t kSide = 100;
  for (std::uint32_t i = 0; i < kSide; ++i)
    for (std::uint32_t j = 0; j < kSide; ++j) {
      const bool kept = d.keeps_pair(3, i, j);
      same[0] += kept == d.keeps_pair(4, i, j);
      same[1] += kept == d.keeps_pair(3, i + 1, j);
      same[2] += kept == d.keeps_pair(3, i, j + 1);
      same[3] += kept == other.keeps_pair(3, i, j);
    }
  for (const int count : same) EXPECT_NEAR(count, 5000, 250);  // 5 deviations
}

TEST(DropoutSeed, DiffersForEveryRunStepLayerAndKind) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t run = 0; run < 3; ++run)
    for (std::uint64_t step = 0; step < 10; ++step)
      for (std::uint64_t layer = 0; layer < 10; ++layer)
        for (std::uint64_t kind = 0; kind < 3; ++kind) seeds.insert(dropout_seed(run, step, layer, kind));
  EXPECT_EQ(seeds.size(), 900u);
}

}  // namespace
}  // namespace qkv
