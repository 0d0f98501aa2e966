// SPDX-License-Identifier: Apache-2.0
#include "model/rotary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "qkv/model.h"

namespace qkv {
namespace {

// R31 of the reports: x = [1, 2, 3, 4] at position 1, base 10000 (angles 1 and 0.01).
TEST(Rotary, TurnsHalvesNotNeighbours) {
  RotaryTable<double> table{4, 10000, {}, {}};
  table.reach(2);
  std::vector<double> x{1, 2, 3, 4};
  rotary({1, 1}, 1, table.head_dim, table, 1, false, x.data());
  const double half[] = {-1.9841106, 1.9599007, 2.4623779, 4.0197997};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(x[i], half[i], 1e-7);
  // Checkpoints whose pairs are neighbours: the same turn between two reorderings.
  std::vector<double> y{1, 3, 2, 4};
  rotary({1, 1}, 1, table.head_dim, table, 1, false, y.data());
  const double neighbours[] = {-1.1426397, 2.9598507, 1.9220756, 4.0297995};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], neighbours[i], 1e-7);
}

TEST(Rotary, PositionZeroIsTheIdentityAndBackUndoes) {
  RotaryTable<float> table{6, 50, {}, {}};
  table.reach(3);
  table.reach(7);
  std::vector<float> x(2 * 3 * 2 * 6);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3.0f;
  const auto before = x;
  rotary({2, 3}, 2, 12, table, 0, false, x.data());
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(x[b * 36 + i], before[b * 36 + i]);
  EXPECT_NE(x, before);
  rotary({2, 3}, 2, 12, table, 0, true, x.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], before[i], 1e-5f);
}

// What makes it a position code: q . k depends on the distance alone.
TEST(Rotary, DotProductsDependOnTheDistance) {
  RotaryTable<double> table{8, 10000, {}, {}};
  table.reach(40);
  const auto dot_at = [&](std::int64_t i, std::int64_t j) {
    std::vector<double> q{1, -2, 0.5, 3, 2, 1, -1, 0.25}, k{0.5, 1, 2, -1, 1, 1, 3, -2};
    rotary({1, 1}, 1, table.head_dim, table, i, false, q.data());
    rotary({1, 1}, 1, table.head_dim, table, j, false, k.data());
    double sum = 0;
    for (std::size_t d = 0; d < 8; ++d) sum += q[d] * k[d];
    return sum;
  };
  EXPECT_NEAR(dot_at(5, 2), dot_at(33, 30), 1e-12);
  EXPECT_GT(std::abs(dot_at(5, 2) - dot_at(5, 3)), 1e-3);
}

// LLaMA 3.1's scaling, worked by hand: theta 500000, head_dim 128, factor 8, low 1, high 4, first context 8192. Pair 0
// turns fast and is kept; pair 63 has a wave of 2.56 million tokens and is divided by 8; pair 32 turns 707^-1 a
// position, 8192 / (2 pi 707.1) = 1.8438 waves, so (1.8438 - 1) / 3 = 0.28127 of it is kept.
TEST(Rotary, Llama3ScalingKeepsHighFrequencies) {
  ModelConfig c;
  c.n_head = 1;
  c.d_model = c.head_dim = 128;
  c.positions = Positions::rotary;
  c.rope_theta = 500000;
  c.rope_scaling = {8, 1, 4, 8192, {}};
  const std::vector<double> f = rotary_frequencies(c);
  ASSERT_EQ(f.size(), 64u);
  EXPECT_EQ(f[0], 1);
  EXPECT_NEAR(f[63] * 8, std::pow(500000, -126.0 / 128), 1e-18);
  EXPECT_NEAR(f[32] * 707.10678, (1 - 0.28127) / 8 + 0.28127, 1e-4);
  c.rope_scaling = {4, 0, 0, 0, std::vector<double>(64, 2.0)};  // linear, and a factor for each pair
  EXPECT_NEAR(rotary_frequencies(c)[7] * 8, std::pow(500000, -14.0 / 128), 1e-15);
}

TEST(Rotary, ScalingThatCannotBeIsRefused) {
  ModelConfig c;
  c.n_head = 1;
  c.d_model = c.head_dim = 8;
  c.positions = Positions::rotary;
  for (const RopeScaling& s : std::vector<RopeScaling>{{0, 0, 0, 0, {}},
                                                       {8, 4, 1, 8192, {}},
                                                       {8, 0, 4, 8192, {}},
                                                       {8, 1, 4, 0, {}},
                                                       {1, 0, 0, 0, {1, 1}},
                                                       {1, 0, 0, 0, {1, 1, 0, 1}}}) {
    c.rope_scaling = s;
    EXPECT_THROW(c.resolved(), std::invalid_argument);
  }
  c.rope_scaling = {2, 0, 0, 0, {}};
  EXPECT_NO_THROW(c.resolved());
  c.positions = Positions::learned;
  EXPECT_THROW(c.resolved(), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
