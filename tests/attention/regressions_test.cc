// SPDX-License-Identifier: Apache-2.0
// Bugs found by the fuzz target (tests/fuzz), each reduced to its smallest form.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "attention/arrays.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// With a scale near the limits of f32, the threshold 8 / (scale * log2(e)) for moving the maximum was infinite, so lse
// stayed -inf and the row had no gradients.
TEST(Regressions, TinyScaleGivesAUniformMean) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const double scale : {1e-38, 1e-40, -1e-40, 1e-45})
      for (const AttentionPath path : paths(dtype)) {
        const Tensor q = random({1, 1, 3, 4}, 1, dtype), k = random({1, 1, 5, 4}, 2, dtype);
        const Tensor v = random({1, 1, 5, 2}, 3, dtype), dout = random({1, 1, 3, 2}, 4, dtype);
        AttentionOptions options;
        options.scale = scale;
        options.path = path;
        const Forward f = forward(q, k, v, options);
        for (const double lse : values(f.lse)) EXPECT_NEAR(lse, std::log(5.0), 1e-6) << scale;
        for (const double p : values(f.probs)) EXPECT_NEAR(p, 0.2, 1e-6) << scale;
        const std::vector<double> rows = values(v), out = values(f.out), gradient = values(dout);
        for (std::size_t c = 0; c < 2; ++c) {
          const double mean = (rows[c] + rows[c + 2] + rows[c + 4] + rows[c + 6] + rows[c + 8]) / 5;
          for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(out[2 * i + c], mean, 4e-3) << scale;
        }
        const std::vector<double> dv = values(backward(q, k, v, f, dout, options).dv);
        for (std::size_t e = 0; e < dv.size(); ++e)
          EXPECT_NEAR(dv[e], (gradient[e % 2] + gradient[e % 2 + 2] + gradient[e % 2 + 4]) / 5, 4e-3) << scale;
      }
}

// scale * log2(e) was infinite, and 0 * inf is NaN.
TEST(Regressions, HugeScaleOfEqualScoresGivesAUniformMean) {
  for (const AttentionPath path : paths()) {
    const Tensor q({1, 1, 1, 2}), k = random({1, 1, 4, 2}, 1), v = make({1, 1, 4, 1}, {1, 2, 3, 4});
    AttentionOptions options;
    options.scale = 3e38;
    options.path = path;
    const Forward f = forward(q, k, v, options);
    EXPECT_NEAR(values(f.out)[0], 2.5, 1e-6);
    EXPECT_NEAR(values(f.lse)[0], std::log(4.0), 1e-6);
  }
}

// A row with NaN is NaN for every key it sees, even where the probability would otherwise underflow.
TEST(Regressions, ProbabilitiesOfARowWithNaN) {
  for (const AttentionPath path : paths()) {
    const Tensor q = make({1, 1, 1, 1}, {1}), k = make({1, 1, 4, 1}, {300, kNaN, 0, 0}), v({1, 1, 4, 1});
    const Tensor mask = bool_mask({4}, {1, 1, 1, 0});
    AttentionOptions options;
    options.path = path;
    options.mask = mask;
    const std::vector<double> probs = values(forward(q, k, v, options).probs);
    for (std::size_t j = 0; j < 3; ++j) EXPECT_TRUE(std::isnan(probs[j])) << j << " " << probs[j];
    EXPECT_EQ(probs[3], 0);
  }
}

// A mask without a batch axis has a gradient even for a batch of 0: nothing is added to it, and it was left unwritten.
TEST(Regressions, GradientOfAMaskWithoutSequences) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor q({0, 2, 3, 4}, dtype), k({0, 2, 5, 4}, dtype), v({0, 2, 5, 1}, dtype), out({0, 2, 3, 1}, dtype);
    const Tensor lse({0, 2, 3});
    for (const AttentionPath path : paths(dtype))
      for (const Dims& shape : {Dims{2, 3, 5}, Dims{1, 1, 3, 5}, Dims{3, 1}, Dims{5}, Dims{}}) {
        const Tensor mask = random(shape, 1);
        Tensor dmask(shape, dtype);
        fill(dmask, std::vector<double>(static_cast<std::size_t>(dmask.size()), kNaN));
        AttentionOptions options;
        options.path = path;
        options.mask = mask;
        attention_backward(q, k, v, out, lse, out, options, {.dmask = dmask});
        for (const double d : values(dmask)) EXPECT_EQ(d, 0) << to_string(shape);
      }
  }
}

// With many keys and few tiles, the tasks are the splits: without any query or sequence, the first tile was looked up
// anyway.
TEST(Regressions, ManyKeysWithoutQueries) {
  set_num_threads(4);
  for (const auto& [batch, q_len] : {std::pair<std::int64_t, std::int64_t>{1, 0}, {0, 3}, {0, 0}}) {
    const Tensor q({batch, 2, q_len, 4}), k({batch, 2, 5000, 4}), v({batch, 2, 5000, 3});
    EXPECT_EQ(attention(q, k, v).shape(), (Dims{batch, 2, q_len, 3}));
    const Forward f = forward(q, k, v, {});
    for (const double d : values(backward(q, k, v, f, Tensor({batch, 2, q_len, 3}), {}).dk)) ASSERT_EQ(d, 0);
  }
  set_num_threads(0);
}

// With such splits, the buffer for sums was only as large as the first sequence needed.
TEST(Regressions, ManyKeysAndAFirstSequenceWithoutQueries) {
  set_num_threads(4);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {1, 7, 40}) {
      const Tensor q = random({2, 1, rows, 8}, 1, dtype), k = random({2, 1, 5000, 8}, 2, dtype);
      const Tensor v = random({2, 1, 5000, 8}, 3, dtype);
      AttentionOptions options;
      options.q_lengths = {0, rows};
      const std::vector<double> found = values(attention(q, k, v, options));
      options.q_lengths = {};
      const std::vector<double> wanted = values(attention(q, k, v, options));
      const auto half = static_cast<std::size_t>(rows * 8);
      for (std::size_t i = 0; i < half; ++i) {
        EXPECT_EQ(found[i], 0);
        EXPECT_EQ(found[half + i], wanted[half + i]);
      }
    }
  set_num_threads(0);
}

}  // namespace
}  // namespace qkv::test
