// SPDX-License-Identifier: Apache-2.0
#include "core/random.h"

#include <gtest/gtest.h>

namespace qkv {
namespace {

// Test vectors for philox4x32-10 by the authors of Philox.
TEST(Random, IsPhilox) {
  const auto zero = Random(0, 0).block(0);
  EXPECT_EQ(zero[0], 0x6627e8d5u);
  EXPECT_EQ(zero[1], 0xe169c58du);
  EXPECT_EQ(zero[2], 0xbc57ac4cu);
  EXPECT_EQ(zero[3], 0x9b00dbd8u);
  const auto ones = Random(~0ull, ~0ull).block(~0ull);
  EXPECT_EQ(ones[0], 0x408f276du);
  EXPECT_EQ(ones[1], 0x41c83b0eu);
  EXPECT_EQ(ones[2], 0xa20bc7c6u);
  EXPECT_EQ(ones[3], 0x6d5451fdu);
}

TEST(Random, HasTheMomentsItClaims) {
  const Random random(1, 2);
  double sum = 0, squares = 0, mean = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
    mean += random.uniform(static_cast<std::uint64_t>(i));
    ASSERT_LT(random.below(static_cast<std::uint64_t>(i), 7), 7u);
  }
  EXPECT_NEAR(sum / n, 0, 0.015);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(mean / n, 0.5, 0.005);
}

}  // namespace
}  // namespace qkv
