// SPDX-License-Identifier: Apache-2.0
// Attention bugs that users of other systems reported, as small inputs with known answers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr double kInf = std::numeric_limits<double>::infinity();

class Reports : public ::testing::TestWithParam<AttentionPath> {
 protected:
  Reports() { options.path = GetParam(); }
  AttentionOptions options;
};
INSTANTIATE_TEST_SUITE_P(Paths, Reports, ::testing::ValuesIn(paths()));

Tensor column(const std::vector<double>& list) { return make({1, 1, static_cast<std::int64_t>(list.size()), 1}, list); }
Tensor zeros(std::int64_t n) { return Tensor({1, 1, n, 1}); }

// pytorch #103963: NaN where rows of a bool mask are all false.
TEST_P(Reports, FullyMaskedRow) {
  const Tensor mask = bool_mask({2, 2}, {1, 0, 0, 0});
  options.mask = mask;
  const Tensor qk = column({1, 2}), v = column({10, 20});
  const Forward f = forward(qk, qk, v, options);
  EXPECT_THAT(values(f.out), ElementsAre(10, 0));
  const Backward b = backward(qk, qk, v, f, column({1, 1}), options);
  EXPECT_THAT(values(b.dv), ElementsAre(1, 0));
  EXPECT_THAT(values(b.dq), ElementsAre(0, 0));
  EXPECT_THAT(values(b.dk), ElementsAre(0, 0));
}

// pytorch #108108: which corner a causal mask starts from.
TEST_P(Reports, CausalCornerIsNamed) {
  options.causal = true;
  options.alignment = Alignment::bottom_right;
  EXPECT_THAT(values(forward(zeros(2), zeros(5), column({1, 2, 3, 4, 5}), options).out), ElementsAre(2.5, 3));
  options.alignment = Alignment::top_left;
  EXPECT_THAT(values(forward(zeros(2), zeros(5), column({1, 2, 3, 4, 5}), options).out), ElementsAre(1, 1.5));
  options.alignment = Alignment::none;
  EXPECT_THROW(forward(zeros(2), zeros(5), zeros(5), options), std::invalid_argument);
}

// onnx PR #8068: a bool mask converted to an additive one as (1 - m) * -inf is NaN where m is true.
TEST_P(Reports, BoolMaskWithCausal) {
  const Tensor mask = bool_mask({2, 2}, {1, 1, 1, 1});
  options.mask = mask;
  options.causal = true;
  options.alignment = Alignment::top_left;
  EXPECT_THAT(values(forward(zeros(2), zeros(2), column({1, 2}), options).out), ElementsAre(1, 1.5));
}

// pytorch #109517: a mask row of the lowest float is a constant shift.
TEST_P(Reports, RowOfTheLowestFloatIsTheMean) {
  const Tensor mask = make({1, 3}, std::vector<double>(3, std::numeric_limits<float>::lowest()));
  options.mask = mask;
  EXPECT_THAT(values(forward(zeros(1), zeros(3), column({1, 2, 6}), options).out), ElementsAre(3));
}

// pytorch #119320: huge queries and keys gave NaN gradients.
TEST_P(Reports, HugeLogitsHaveFiniteGradients) {
  options.scale = 1;
  const Tensor q = column({3e4}), k = column({3e4, -3e4}), v = column({1, 2});
  const Forward f = forward(q, k, v, options);
  EXPECT_THAT(values(f.out), ElementsAre(1));
  const Backward b = backward(q, k, v, f, column({1}), options);
  EXPECT_THAT(values(b.dq), ElementsAre(0));
  EXPECT_THAT(values(b.dk), ElementsAre(0, 0));
  EXPECT_THAT(values(b.dv), ElementsAre(1, 0));
}

// pytorch PR #188302: the gradient of only the mask.
TEST_P(Reports, GradientOfOnlyTheMask) {
  const Tensor mask({1, 2}), v = column({0, 1}), dout = column({1});
  options.mask = mask;
  const Forward f = forward(zeros(1), zeros(2), v, options);
  Tensor dmask({1, 2});
  attention_backward(zeros(1), zeros(2), v, f.out, f.lse, dout, options, {{}, {}, {}, dmask, {}});
  EXPECT_THAT(values(dmask), ElementsAre(-0.25, 0.25));
}

// onnxruntime PR #25927: whether a window counts the query's own token. Here window_left counts the tokens before it.
TEST_P(Reports, WindowCountsTheKeysBefore) {
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.window_left = 1;
  EXPECT_THAT(values(forward(zeros(4), zeros(4), column({1, 2, 3, 4}), options).out), ElementsAre(1, 1.5, 2.5, 3.5));
  options.window_left = 2;
  EXPECT_THAT(values(forward(zeros(4), zeros(4), column({1, 2, 3, 4}), options).out), ElementsAre(1, 1.5, 2, 3));
}

// pytorch #141218: zero-size dimensions crashed.
TEST_P(Reports, ZeroSizes) {
  EXPECT_THROW(forward(Tensor({1, 4, 2, 3}), Tensor({1, 0, 2, 3}), Tensor({1, 0, 2, 3}), options),
               std::invalid_argument);
  EXPECT_THROW(forward(Tensor({1, 1, 2, 0}), Tensor({1, 1, 2, 0}), Tensor({1, 1, 2, 1}), options),
               std::invalid_argument);
  EXPECT_THROW(forward(Tensor({1, 0, 2, 3}), Tensor({1, 1, 2, 3}), Tensor({1, 1, 2, 3}), options),
               std::invalid_argument);
  const Forward no_keys = forward(zeros(2), zeros(0), zeros(0), options);
  EXPECT_THAT(values(no_keys.out), ElementsAre(0, 0));
  EXPECT_THAT(values(backward(zeros(2), zeros(0), zeros(0), no_keys, zeros(2), options).dq), ElementsAre(0, 0));
  EXPECT_TRUE(values(forward(zeros(0), zeros(2), zeros(2), options).out).empty());
  EXPECT_TRUE(values(forward(Tensor({0, 1, 1, 1}), Tensor({0, 1, 1, 1}), Tensor({0, 1, 1, 1}), options).out).empty());
}

// pytorch #142228: more than 65,535 sequences or heads.
TEST_P(Reports, ManySequencesAndManyHeads) {
  std::vector<double> counting(65'536 * 4);
  std::iota(counting.begin(), counting.end(), 0);
  for (const Dims& shape : {Dims{65'536, 1, 1, 4}, Dims{1, 65'536, 1, 4}}) {
    const Tensor q = random(shape, 1), v = make(shape, counting);
    EXPECT_TRUE(same_bits(attention(q, q, v, options), v));
  }
}

// xformers #813: a mask whose last axis is not a multiple of 8.
TEST_P(Reports, MaskOfAnyWidth) {
  for (std::int64_t keys : {1, 7, 9, 43, 65}) {
    const Tensor q = random({1, 1, 16, 4}, 1), k = random({1, 1, keys, 4}, 2), v = random({1, 1, keys, 4}, 3);
    const Tensor padded = random({1, 1, 16, keys + 5}, 4);
    Tensor sliced({1, 1, 16, keys});
    ConstView part = padded;
    part.shape[3] = keys;
    fill(sliced, values(part));
    options.mask = part;
    const Tensor a = attention(q, k, v, options);
    options.mask = sliced;
    EXPECT_TRUE(same_bits(a, attention(q, k, v, options))) << keys;
  }
}

// pytorch #110630: head dimensions that are not multiples of 8.
TEST_P(Reports, AnyHeadDimension) {
  for (std::int64_t d : {1, 3, 7, 9, 63, 65, 80, 83}) {
    const Tensor q = random({1, 1, 5, d}, 1), k = random({1, 1, 9, d}, 2), v = random({1, 1, 9, d}, 3);
    const auto wide = [](const Tensor& t) { return converted(t, DType::f64); };
    AttentionOptions exact;
    const std::vector<double> want = values(attention(wide(q), wide(k), wide(v), exact));
    EXPECT_THAT(values(attention(q, k, v, options)), ::testing::Pointwise(::testing::DoubleNear(3e-6), want)) << d;
  }
}

// pytorch #27968: a sample that is all padding; the weights of the others sum to 1.
TEST_P(Reports, PaddedSamples) {
  options.kv_lengths = {5, 3, 1, 0};
  const Tensor q = random({4, 1, 5, 3}, 1), k = random({4, 1, 5, 3}, 2), v = random({4, 1, 5, 3}, 3);
  const Forward f = forward(q, k, v, options);
  const std::vector<double> probs = values(f.probs), out = values(f.out);
  for (std::size_t row = 0; row < 20; ++row) {
    double sum = 0;
    for (std::size_t j = 0; j < 5; ++j) {
      sum += probs[row * 5 + j];
      const bool padding = static_cast<std::int64_t>(j) >= options.kv_lengths[row / 5];
      EXPECT_EQ(probs[row * 5 + j] == 0, padding);
    }
    EXPECT_NEAR(sum, row < 15 ? 1 : 0, 1e-6);
  }
  for (std::size_t e = 45; e < 60; ++e) EXPECT_EQ(out[e], 0);
}

// pytorch #92554: a floating padding mask of 0 and -inf equals the bool mask.
TEST_P(Reports, FloatingAndBoolMasksAgree) {
  const Tensor floating = make({1, 1, 1, 2}, {0, -kInf}), boolean = bool_mask({1, 1, 1, 2}, {1, 0});
  const Tensor q = random({1, 1, 3, 2}, 1), k = random({1, 1, 2, 2}, 2), v = random({1, 1, 2, 2}, 3);
  options.mask = floating;
  const Forward a = forward(q, k, v, options);
  options.mask = boolean;
  const Forward b = forward(q, k, v, options);
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(a.probs, b.probs));
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(values(a.probs)[i * 2 + 1], 0);
}

// pytorch #160064: one head fully masked, with and without the weights.
TEST_P(Reports, MaskedHeadWithAndWithoutWeights) {
  Tensor mask({1, 3, 1, 1}, DType::boolean);
  mask.data<bool>()[0] = mask.data<bool>()[1] = true;
  options.mask = mask;
  const Tensor q = random({1, 3, 5, 4}, 1), k = random({1, 3, 5, 4}, 2), v = random({1, 3, 5, 4}, 3);
  const Forward f = forward(q, k, v, options);
  EXPECT_TRUE(same_bits(f.out, attention(q, k, v, options)));
  const std::vector<double> probs = values(f.probs);
  EXPECT_THAT(std::vector<double>(probs.begin() + 50, probs.end()), Each(0.0));
}

// LLMs-from-scratch #1061: true means may attend.
TEST_P(Reports, TrueMeansMayAttend) {
  const Tensor mask = bool_mask({3, 3}, {0, 1, 1, 0, 0, 1, 0, 0, 0});
  options.mask = mask;
  EXPECT_THAT(values(forward(zeros(3), zeros(3), column({1, 2, 3}), options).out), ElementsAre(2.5, 3, 0));
}

}  // namespace
}  // namespace qkv::test
