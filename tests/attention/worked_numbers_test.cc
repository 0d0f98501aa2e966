// SPDX-License-Identifier: Apache-2.0
// Numbers worked by hand in the source documents, and cases that can be checked by eye.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

using ::testing::DoubleNear;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr double kInf = std::numeric_limits<double>::infinity();

// One query whose scores are exactly `scores`: d_k = 1, q = 1, k = scores, scale 1.
Forward softmax(const std::vector<double>& scores, AttentionPath path) {
  const auto n = static_cast<std::int64_t>(scores.size());
  AttentionOptions options;
  options.scale = 1;
  options.path = path;
  return forward(make({1, 1, 1, 1}, {1}), make({1, 1, n, 1}, scores), Tensor({1, 1, n, 1}), options);
}

// A square score matrix: q is the identity, k the transposed scores, scale 1, causal.
Forward causal_softmax(const std::vector<double>& scores, AttentionPath path) {
  const auto n = static_cast<std::int64_t>(std::sqrt(static_cast<double>(scores.size())));
  Tensor identity({1, 1, n, n}), k({1, 1, n, n}), v = random({1, 1, n, n}, 1);
  for (std::int64_t i = 0; i < n; ++i) identity.data()[i * n + i] = 1;
  fill(swap_axes(k.view(), 2, 3), scores);
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.scale = 1;
  options.path = path;
  return forward(identity, k, v, options);
}

class WorkedNumbers : public ::testing::TestWithParam<AttentionPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, WorkedNumbers, ::testing::ValuesIn(paths()));

TEST_P(WorkedNumbers, LargeScoresSaturate) {
  EXPECT_THAT(values(softmax({100, 1, 2}, GetParam()).probs), Pointwise(DoubleNear(1e-7), {1.0, 0.0, 0.0}));
}

TEST_P(WorkedNumbers, SmallScoresShare) {
  EXPECT_THAT(values(softmax({1, 0.1, 0.2}, GetParam()).probs), Pointwise(DoubleNear(5e-4), {0.539, 0.219, 0.242}));
}

TEST_P(WorkedNumbers, MinusInfinityIsExactlyZero) {
  AttentionOptions options;
  const Tensor mask = make({4}, {0, 0, 0, -kInf});
  options.mask = mask;
  options.scale = 1;
  options.path = GetParam();
  const Forward f =
      forward(make({1, 1, 1, 1}, {1}), make({1, 1, 4, 1}, {0.32, 1.87, 0.94, 0.5}), Tensor({1, 1, 4, 1}), options);
  EXPECT_THAT(values(f.probs), Pointwise(DoubleNear(5e-4), {0.132, 0.622, 0.246, 0.0}));
  EXPECT_EQ(values(f.probs)[3], 0.0);
}

TEST_P(WorkedNumbers, CausalFourByFour) {
  const Forward f =
      causal_softmax({0.3, 0.2, 0.1, 0.4, 0.2, 0.5, 0.2, 0.1, 0.1, 0.3, 0.4, 0.2, 0.2, 0.1, 0.3, 0.4}, GetParam());
  const auto e = [](double x) { return std::exp(x); };
  const double s1 = e(0.2) + e(0.5), s2 = e(0.1) + e(0.3) + e(0.4), s3 = e(0.2) + e(0.1) + e(0.3) + e(0.4);
  const std::vector<double> want = {1,           0,           0,           0,           e(0.2) / s1, e(0.5) / s1,
                                    0,           0,           e(0.1) / s2, e(0.3) / s2, e(0.4) / s2, 0,
                                    e(0.2) / s3, e(0.1) / s3, e(0.3) / s3, e(0.4) / s3};
  EXPECT_THAT(values(f.probs), Pointwise(DoubleNear(1e-6), want));
  const std::vector<double> got = values(f.probs);
  EXPECT_EQ(got[0], 1.0);  // the first token sees only itself
  for (std::size_t i = 0; i < 4; ++i)
    for (std::size_t j = i + 1; j < 4; ++j) EXPECT_EQ(got[i * 4 + j], 0.0);
}

TEST_P(WorkedNumbers, LowerTriangleOfTheExampleRows) {
  // The scores are logarithms of the wanted probabilities, so the rows are exactly those.
  const auto l = [](double p) { return std::log(p); };
  const Forward f = causal_softmax(
      {l(1.0), 9, 9, 9, l(0.4), l(0.6), 9, 9, l(0.2), l(0.3), l(0.5), 9, l(0.1), l(0.2), l(0.3), l(0.4)}, GetParam());
  EXPECT_THAT(values(f.probs),
              Pointwise(DoubleNear(1e-6), {1.0, 0., 0., 0., 0.4, 0.6, 0., 0., 0.2, 0.3, 0.5, 0., 0.1, 0.2, 0.3, 0.4}));
}

TEST_P(WorkedNumbers, OutputIsTheWeightedSumOfValues) {
  // 70 % of the attention on one key and 30 % on the other.
  AttentionOptions options;
  options.scale = 1;
  options.path = GetParam();
  const Forward f = forward(make({1, 1, 1, 1}, {1}), make({1, 1, 2, 1}, {std::log(0.7), std::log(0.3)}),
                            make({1, 1, 2, 2}, {10, 0, 0, 10}), options);
  EXPECT_THAT(values(f.out), Pointwise(DoubleNear(2e-6), {7.0, 3.0}));
  EXPECT_NEAR(values(f.lse)[0], 0, 1e-6);
}

TEST_P(WorkedNumbers, DefaultScaleIsOneOverTheRootOfTheHeadDimension) {
  // d_k = 64: q . k = 64 becomes a score of 8, as in ANDREA-120M.
  const Tensor ones = make({1, 1, 1, 64}, std::vector<double>(64, 1.0));
  Tensor scores({1, 1, 1, 1});
  attention_steps(ones, ones, ones, {}, {scores, {}, {}, {}});
  EXPECT_EQ(values(scores)[0], 8.0);
  AttentionOptions options;
  options.path = GetParam();
  EXPECT_NEAR(values(forward(ones, ones, ones, options).lse)[0], 8.0, 4e-6);
}

TEST_P(WorkedNumbers, MultiHeadShapes) {
  // [4, 16, 512] -> heads [4, 4, 16, 128] -> scores [4, 4, 16, 16] -> [4, 16, 512], without a copy.
  Tensor q = random({4, 16, 4, 128}, 1), k = random({4, 16, 4, 128}, 2), v = random({4, 16, 4, 128}, 3);
  Tensor out({4, 16, 4, 128}), probs({4, 4, 16, 16}), lse({4, 4, 16});
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.path = GetParam();
  attention(swap_axes(q.view(), 1, 2), swap_axes(k.view(), 1, 2), swap_axes(v.view(), 1, 2), options,
            {swap_axes(out.view(), 1, 2), lse, probs});
  const std::vector<double> p = values(probs), o = values(out), values_v = values(v);
  for (std::size_t row = 0; row < p.size(); row += 16) {
    double sum = 0;
    for (std::size_t j = 0; j < 16; ++j) sum += p[row + j];
    EXPECT_NEAR(sum, 1, 1e-6);
  }
  for (std::size_t b = 0; b < 4; ++b)  // the first token of each sequence returns its own value
    for (std::size_t c = 0; c < 512; ++c) EXPECT_EQ(o[b * 16 * 512 + c], values_v[b * 16 * 512 + c]);
}

TEST_P(WorkedNumbers, ScoresOfAHeadOfAndrea120M) {
  Tensor q({1, 1, 1024, 64}), probs({1, 1, 1024, 1024}), out({1, 1, 1024, 64});
  EXPECT_EQ(probs.size(), 1'048'576);
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.path = GetParam();
  attention(q, q, q, options, {out, {}, probs});
  std::int64_t allowed = 0;
  for (std::int64_t e = 0; e < probs.size(); ++e) allowed += probs.data()[e] > 0;
  EXPECT_EQ(allowed, 1024 * 1025 / 2);
}

TEST_P(WorkedNumbers, OneHotQueriesLookUpValues) {
  // A lookup: 100 keys, each in its own direction; query i matches key (7 i) mod 100 strongly and returns its value.
  Tensor q({1, 1, 30, 100}), k({1, 1, 100, 100}), v = random({1, 1, 100, 5}, 3);
  for (std::int64_t j = 0; j < 100; ++j) k.data()[j * 100 + j] = 1;
  for (std::int64_t i = 0; i < 30; ++i) q.data()[i * 100 + 7 * i % 100] = 200;
  AttentionOptions options;
  options.scale = 1;
  options.path = GetParam();
  const Forward f = forward(q, k, v, options);
  for (std::int64_t i = 0; i < 30; ++i)
    for (std::int64_t c = 0; c < 5; ++c) EXPECT_EQ(f.out.data()[i * 5 + c], v.data()[7 * i % 100 * 5 + c]) << i;
}

TEST_P(WorkedNumbers, EqualScoresAreTheMean) {
  AttentionOptions options;
  options.path = GetParam();
  for (std::int64_t n : {1, 2, 3, 63, 64, 65, 127, 128, 129, 258}) {
    Tensor v({1, 1, n, 1});
    for (std::int64_t j = 0; j < n; ++j) v.data()[j] = static_cast<float>(j + 1);
    const Forward f = forward(random({1, 1, 2, 4}, 5), Tensor({1, 1, n, 4}), v, options);
    EXPECT_THAT(values(f.out), Each(DoubleNear(static_cast<double>(n + 1) / 2, 1e-5 * static_cast<double>(n))));
    EXPECT_THAT(values(f.lse), Each(DoubleNear(std::log(static_cast<double>(n)), 1e-6)));
  }
}

TEST_P(WorkedNumbers, GroupedHeadsRepeatNeighbours) {
  // 4 query heads on 2 key heads: 0 0 1 1, never 0 1 0 1.
  AttentionOptions options;
  options.path = GetParam();
  const Forward f = forward(Tensor({1, 4, 1, 2}), Tensor({1, 2, 1, 2}), make({1, 2, 1, 1}, {5, 9}), options);
  EXPECT_THAT(values(f.out), ElementsAre(5, 5, 9, 9));
}

TEST_P(WorkedNumbers, SinkTakesItsShareAndAddsNothing) {
  // Scores 0, 0 and a sink of 0: one third each.
  const Tensor sink = make({1}, {0});
  AttentionOptions options;
  options.sinks = sink;
  options.path = GetParam();
  const Forward f = forward(Tensor({1, 1, 1, 1}), Tensor({1, 1, 2, 1}), make({1, 1, 2, 1}, {3, 6}), options);
  EXPECT_NEAR(values(f.out)[0], 3, 1e-6);
  EXPECT_THAT(values(f.probs), Each(DoubleNear(1.0 / 3, 1e-7)));
  EXPECT_NEAR(values(f.lse)[0], std::log(3.0), 1e-6);
}

TEST_P(WorkedNumbers, AlibiSubtractsItsSlopePerStep) {
  // Slope ln 2: each step of distance halves the weight. Position 1 of 3: weights 1/2, 1, 1/2.
  const Tensor slope = make({1}, {std::log(2.0)});
  AttentionOptions options;
  options.alibi_slopes = slope;
  options.alignment = Alignment::start;
  options.start = {1};
  options.path = GetParam();
  const Forward f = forward(Tensor({1, 1, 1, 1}), Tensor({1, 1, 3, 1}), Tensor({1, 1, 3, 1}), options);
  EXPECT_THAT(values(f.probs), Pointwise(DoubleNear(1e-6), {0.25, 0.5, 0.25}));
}

TEST_P(WorkedNumbers, SoftcapBoundsTheScores) {
  // Scores of 1e6 and 0, capped at ln 3: weights 3 and 1.
  AttentionOptions options;
  options.softcap = std::log(3.0);
  options.scale = 1;
  options.path = GetParam();
  const Forward f = forward(make({1, 1, 1, 1}, {1}), make({1, 1, 2, 1}, {1e6, 0}), Tensor({1, 1, 2, 1}), options);
  EXPECT_THAT(values(f.probs), Pointwise(DoubleNear(1e-6), {0.75, 0.25}));
}

TEST(Steps, ShowEachMatrix) {
  const Tensor mask = make({2, 2}, {0, -kInf, 1, 0});
  AttentionOptions options;
  options.mask = mask;
  options.softcap = 2;
  options.scale = 0.5;
  Tensor scores({1, 1, 2, 2}), softcapped({1, 1, 2, 2}), masked({1, 1, 2, 2}), probs({1, 1, 2, 2});
  attention_steps(make({1, 1, 2, 1}, {2, 4}), make({1, 1, 2, 1}, {1, 3}), Tensor({1, 1, 2, 1}), options,
                  {scores, softcapped, masked, probs});
  const auto cap = [](double x) { return 2 * std::tanh(x / 2); };
  EXPECT_THAT(values(scores), ElementsAre(1, 3, 2, 6));
  EXPECT_THAT(values(softcapped), Pointwise(DoubleNear(1e-6), {cap(1), cap(3), cap(2), cap(6)}));
  EXPECT_THAT(values(masked), Pointwise(DoubleNear(1e-6), {cap(1), -kInf, cap(2) + 1, cap(6)}));
  EXPECT_NEAR(values(probs)[2], 1 / (1 + std::exp(cap(6) - cap(2) - 1)), 1e-6);
  EXPECT_EQ(values(probs)[0], 1);
}

}  // namespace
}  // namespace qkv::test
