// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "qkv/model.h"

namespace qkv {
namespace {

// LLaMA 3.1's scaling, worked by hand: theta 500000, head_dim 128, factor 8, low 1, high 4, original context 8192. Pair
// 0 has a high frequency and is unchanged; pair 63 has a wavelength of 2.56 million tokens and is divided by 8; pair 32
// rotates by 707^-1 per position, 8192 / (2 pi 707.1) = 1.8438 wavelengths, so (1.8438 - 1) / 3 = 0.28127 of it is
// unscaled.
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
  c.rope_scaling = {4, 0, 0, 0, std::vector<double>(64, 2.0)};  // linear, and one factor per pair
  EXPECT_NEAR(rotary_frequencies(c)[7] * 8, std::pow(500000, -14.0 / 128), 1e-15);
}

TEST(Rotary, InvalidScalingIsRefused) {
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
