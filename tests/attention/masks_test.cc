// SPDX-License-Identifier: Apache-2.0
// Which keys each query may see, and that masked elements have no effect.
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
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> first_three(const ConstView& view) {
  std::vector<double> all = values(view);
  all.resize(3);
  return all;
}

class Masks : public ::testing::TestWithParam<AttentionPath> {
 protected:
  Masks() { options.path = GetParam(); }

  // The outputs of q_len queries over the values 1 ... kv_len with all scores 0: the mean of the values each query
  // sees.
  std::vector<double> means(std::int64_t q_len, std::int64_t kv_len, std::int64_t batch = 1) const {
    Tensor v({batch, 1, kv_len, 1});
    for (std::int64_t e = 0; e < v.size(); ++e) v.data()[e] = static_cast<float>(e % kv_len + 1);
    return values(forward(Tensor({batch, 1, q_len, 1}), Tensor({batch, 1, kv_len, 1}), v, options).out);
  }

  AttentionOptions options;
};
INSTANTIATE_TEST_SUITE_P(Paths, Masks, ::testing::ValuesIn(paths()));

TEST_P(Masks, CausalAlignments) {
  options.causal = true;
  options.alignment = Alignment::top_left;
  EXPECT_THAT(means(2, 5), ElementsAre(1, 1.5));
  EXPECT_THAT(means(4, 2), ElementsAre(1, 1.5, 1.5, 1.5));
  options.alignment = Alignment::bottom_right;
  EXPECT_THAT(means(2, 5), ElementsAre(2.5, 3));
  EXPECT_THAT(means(4, 2), ElementsAre(0, 0, 1, 1.5));  // the first two precede every key
  options.alignment = Alignment::start;
  options.start = {2};
  EXPECT_THAT(means(2, 5), ElementsAre(2, 2.5));
  options.start = {-1};
  EXPECT_THAT(means(3, 5), ElementsAre(0, 1, 1.5));
  options.start = {100};
  EXPECT_THAT(means(2, 5), ElementsAre(3, 3));
}

TEST_P(Masks, StartOfEachSequence) {
  options.causal = true;
  options.alignment = Alignment::start;
  options.start = {0, 3};
  EXPECT_THAT(means(1, 5, 2), ElementsAre(1, 2.5));
  options.start = {1};
  EXPECT_THAT(means(1, 5, 2), ElementsAre(1.5, 1.5));
}

TEST_P(Masks, WindowsIncludeTheQuerysOwnPosition) {
  options.alignment = Alignment::top_left;
  options.window_left = 0;
  options.window_right = 0;
  EXPECT_THAT(means(4, 4), ElementsAre(1, 2, 3, 4));
  options.window_left = 1;
  EXPECT_THAT(means(4, 4), ElementsAre(1, 1.5, 2.5, 3.5));
  options.window_right = 1;
  EXPECT_THAT(means(4, 4), ElementsAre(1.5, 2, 3, 3.5));
  options.window_left = -1;
  EXPECT_THAT(means(4, 4), ElementsAre(1.5, 2, 2.5, 2.5));
  options.window_right = -1;
  EXPECT_THAT(means(4, 4), ElementsAre(2.5, 2.5, 2.5, 2.5));
  options.window_left = std::numeric_limits<std::int64_t>::max();  // unlimited, without overflow
  options.window_right = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(means(4, 4), ElementsAre(2.5, 2.5, 2.5, 2.5));
  options.window_right = 5;
  options.window_left = 1;
  options.causal = true;  // the narrower limit applies
  EXPECT_THAT(means(4, 4), ElementsAre(1, 1.5, 2.5, 3.5));
}

TEST_P(Masks, LengthsCutQueriesAndKeys) {
  options.q_lengths = {1, 3};
  options.kv_lengths = {2, 0};
  EXPECT_THAT(means(3, 4, 2), ElementsAre(1.5, 0, 0, 0, 0, 0));
  options.kv_lengths = {3, 4};
  options.causal = true;
  options.alignment = Alignment::bottom_right;  // aligned to each sequence's own lengths: starts 2 and 1
  EXPECT_THAT(means(3, 4, 2), ElementsAre(2, 0, 0, 1.5, 2, 2.5));
}

TEST_P(Masks, TrueMeansMayAttend) {
  const Tensor mask = bool_mask({3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0});
  options.mask = mask;
  EXPECT_THAT(means(3, 3), ElementsAre(2.5, 3, 0));
}

TEST_P(Masks, ScalarRowAndColumnMasksBroadcast) {
  const Tensor none = bool_mask({}, {0}), keys = bool_mask({4}, {1, 0, 1, 0}), queries = bool_mask({2, 1}, {0, 1});
  options.mask = none;
  EXPECT_THAT(means(2, 4), ElementsAre(0, 0));
  options.mask = keys;
  EXPECT_THAT(means(2, 4), ElementsAre(2, 2));
  options.mask = queries;
  EXPECT_THAT(means(2, 4), ElementsAre(0, 2.5));
  const Tensor sequences = bool_mask({2, 1, 1, 1}, {1, 0});
  options.mask = sequences;
  EXPECT_THAT(means(1, 4, 2), ElementsAre(2.5, 0));
}

TEST_P(Masks, MasksWithAnyStrides) {
  Tensor transposed = bool_mask({3, 2}, {1, 0, 0, 1, 1, 1});  // [kv, q]
  options.mask = swap_axes(static_cast<const Tensor&>(transposed).view(), 0, 1);
  EXPECT_THAT(means(2, 3), ElementsAre(2, 2.5));
}

TEST_P(Masks, FloatingMaskIsAddedAndMinusInfinityExcludes) {
  const Tensor mask = make({1, 3}, {std::log(2.0), 0, -kInf}, DType::f64);
  options.mask = mask;
  EXPECT_THAT(means(1, 3), ElementsAre(DoubleNear(4.0 / 3, 1e-6)));
}

TEST_P(Masks, LargeFiniteNegativesAreNumbers) {
  for (DType dtype : {DType::f32, DType::f64, DType::bf16, DType::f16}) {
    const double lowest[] = {std::numeric_limits<float>::lowest(), std::numeric_limits<double>::lowest(),
                             -3.38953139e38, -65504};
    const Tensor mask = make({3}, std::vector<double>(3, lowest[static_cast<int>(dtype)]), dtype);
    options.mask = mask;
    EXPECT_THAT(means(1, 3), ElementsAre(DoubleNear(2, 1e-6))) << dtype_name(dtype);
  }
  const Tensor mask = make({3}, {-1e9, -1e9, -1e9});
  options.mask = mask;
  EXPECT_THAT(means(2, 3), Each(DoubleNear(2, 1e-6)));
  // ... and still lose to any moderate score.
  const Tensor mixed = make({3}, {-1e9, 0, std::numeric_limits<float>::lowest()});
  options.mask = mixed;
  EXPECT_THAT(means(1, 3), ElementsAre(2));
}

TEST_P(Masks, FullyMaskedRowIsZeroEverywhere) {
  const Tensor mask = bool_mask({2, 3}, {0, 0, 0, 1, 0, 1}), sinks = make({1}, {0.5});
  options.mask = mask;
  options.sinks = sinks;
  const Tensor q = random({1, 1, 2, 3}, 1), k = random({1, 1, 3, 3}, 2), v = random({1, 1, 3, 2}, 3);
  const Tensor dout = make({1, 1, 2, 2}, {kNaN, kNaN, 1, 2});
  const Forward f = forward(q, k, v, options);
  EXPECT_EQ(values(f.lse)[0], -kInf);
  EXPECT_THAT(first_three(f.probs), Each(0.0));
  EXPECT_EQ(values(f.out)[0], 0);
  EXPECT_EQ(values(f.out)[1], 0);
  const Backward b = backward(q, k, v, f, dout, options);
  EXPECT_THAT(first_three(b.dq), Each(0.0));
  const std::vector<double> dk = values(b.dk), dv = values(b.dv);
  for (std::size_t c = 0; c < 3; ++c) EXPECT_EQ(dk[3 + c], 0);  // no query sees key 1
  for (std::size_t c = 0; c < 2; ++c) EXPECT_EQ(dv[2 + c], 0);
  EXPECT_TRUE(std::isfinite(values(b.dsinks)[0]));
  EXPECT_NE(values(b.dsinks)[0], 0);
}

TEST_P(Masks, MaskedNanChangesNoBit) {
  // Causal over 130 keys, with lengths: queries i < 100 never see later keys.
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.kv_lengths = {120};
  options.q_lengths = {100};
  Tensor q = random({1, 1, 110, 7}, 1), k = random({1, 1, 130, 7}, 2), v = random({1, 1, 130, 5}, 3);
  Tensor dout = random({1, 1, 110, 5}, 4);
  const Forward clean = forward(q, k, v, options);
  const Backward clean_b = backward(q, k, v, clean, dout, options);
  for (std::int64_t j = 100; j < 130; ++j) {
    for (std::int64_t c = 0; c < 7; ++c) k.data()[j * 7 + c] = j % 2 ? NAN : INFINITY;
    for (std::int64_t c = 0; c < 5; ++c) v.data()[j * 5 + c] = j % 3 ? NAN : -INFINITY;
  }
  for (std::int64_t i = 100; i < 110; ++i) {
    for (std::int64_t c = 0; c < 7; ++c) q.data()[i * 7 + c] = NAN;
    for (std::int64_t c = 0; c < 5; ++c) dout.data()[i * 5 + c] = NAN;
  }
  const Forward f = forward(q, k, v, options);
  const Backward b = backward(q, k, v, f, dout, options);
  EXPECT_TRUE(same_bits(clean.out, f.out));
  EXPECT_TRUE(same_bits(clean.lse, f.lse));
  EXPECT_TRUE(same_bits(clean.probs, f.probs));
  EXPECT_TRUE(same_bits(clean_b.dq, b.dq));
  EXPECT_TRUE(same_bits(clean_b.dk, b.dk));
  EXPECT_TRUE(same_bits(clean_b.dv, b.dv));
}

TEST_P(Masks, NanInOneRowsMaskedValueLeavesThatRowAlone) {
  // Key 1 contains NaN; it is masked for row 0 and visible to row 1.
  const Tensor mask = bool_mask({2, 2}, {1, 0, 1, 1});
  options.mask = mask;
  const Forward f = forward(Tensor({1, 1, 2, 1}), Tensor({1, 1, 2, 1}), make({1, 1, 2, 1}, {4, kNaN}), options);
  EXPECT_EQ(values(f.out)[0], 4);
  EXPECT_TRUE(std::isnan(values(f.out)[1]));
}

TEST_P(Masks, VisibleNanPropagates) {
  for (std::int64_t bad : {0, 1, 63, 64, 65, 127, 128, 129, 149}) {
    Tensor k = random({1, 1, 150, 3}, 2), v = random({1, 1, 150, 2}, 3);
    v.data()[bad * 2 + 1] = NAN;
    const std::vector<double> out = values(forward(random({1, 1, 1, 3}, 1), k, v, options).out);
    EXPECT_TRUE(std::isfinite(out[0]));
    EXPECT_TRUE(std::isnan(out[1])) << bad;
    k.data()[bad * 3] = NAN;
    const Forward f = forward(random({1, 1, 1, 3}, 1), k, v, options);
    EXPECT_TRUE(std::isnan(values(f.out)[0])) << bad;
    EXPECT_TRUE(std::isnan(values(f.lse)[0])) << bad;
  }
}

TEST_P(Masks, ScoresOfMinusInfinityAreMasked) {
  // If q . k = -inf, the weight is exactly 0 whatever the value; if it is the only score, the row is fully masked.
  const Tensor q = make({1, 1, 1, 1}, {-kInf});
  const Forward f = forward(q, make({1, 1, 2, 1}, {1, 2}), make({1, 1, 2, 1}, {kNaN, 1}), options);
  EXPECT_THAT(values(f.out), ElementsAre(0));
  EXPECT_THAT(values(f.lse), ElementsAre(-kInf));
}

TEST_P(Masks, ResultsAreNeverMinusZero) {
  const Tensor v = make({1, 1, 3, 1}, {-0.0, -0.0, 5});
  const Tensor mask = bool_mask({3}, {1, 1, 0});
  options.mask = mask;
  const Forward f = forward(Tensor({1, 1, 1, 1}), Tensor({1, 1, 3, 1}), v, options);
  EXPECT_EQ(values(f.out)[0], 0);
  EXPECT_FALSE(std::signbit(values(f.out)[0]));
}

}  // namespace
}  // namespace qkv::test
