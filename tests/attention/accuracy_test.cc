// SPDX-License-Identifier: Apache-2.0
// The rule of flash-attention's tests: measured against f64, the fast path's error is at most twice that of the naive
// path in the same precision, plus one unit in the last place of the largest value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

constexpr double kLowest = std::numeric_limits<float>::lowest();

double unit_in_the_last_place(double x) {
  const auto f = static_cast<float>(x);
  return static_cast<double>(std::nextafter(f, std::numeric_limits<float>::infinity()) - f);
}

// The largest errors over several inputs of one kind; with a single input the comparison would be down to chance.
class Rule {
 public:
  // `allowance`: the error that rounding the inputs of the backward pass (out and lse, in f32) may cause.
  void add(const ConstView& exact, const ConstView& naive, const ConstView& fast, double allowance = 0) {
    const std::vector<double> e = values(exact), n = values(naive), f = values(fast);
    for (std::size_t x = 0; x < e.size(); ++x) {
      ASSERT_EQ(std::isnan(n[x]), std::isnan(f[x])) << name_ << "[" << x << "]";
      if (std::isnan(n[x]) || std::isinf(e[x])) continue;
      largest_ = std::max(largest_, std::abs(e[x]));
      naive_ = std::max(naive_, std::abs(n[x] - e[x]));
      fast_ = std::max(fast_, std::abs(f[x] - e[x]));
    }
    allowance_ = std::max(allowance_, allowance);
  }
  explicit Rule(const char* name) : name_(name) {}
  ~Rule() {
    EXPECT_LE(fast_, 2 * naive_ + unit_in_the_last_place(largest_) + allowance_)
        << name_ << ": naive error " << naive_ << ", allowance " << allowance_ << ", largest value " << largest_;
  }

 private:
  const char* name_;
  double largest_ = 0, naive_ = 0, fast_ = 0, allowance_ = 0;
};

double largest(const ConstView& view) {
  double most = 0;
  for (double x : values(view))
    if (std::isfinite(x)) most = std::max(most, std::abs(x));
  return most;
}

struct Inputs {
  Tensor q, k, v, dout, mask;
  AttentionOptions options;
};

Inputs random_inputs(std::uint64_t seed, std::int64_t q_len, std::int64_t kv_len, std::int64_t d,
                     double deviation = 1) {
  return {random({1, 2, q_len, d}, seed, DType::f32, deviation),
          random({1, 1, kv_len, d}, seed + 1000, DType::f32, deviation),
          random({1, 1, kv_len, d}, seed + 2000, DType::f32, deviation),
          random({1, 2, q_len, d}, seed + 3000, DType::f32, deviation),
          {},
          {}};
}

struct Rules {
  Rule out{"out"}, lse{"lse"}, dq{"dq"}, dk{"dk"}, dv{"dv"};

  void add(Inputs& in) {
    if (in.mask.raw()) in.options.mask = in.mask;
    in.options.path = AttentionPath::automatic;
    const auto wide = [](const Tensor& t) { return converted(t, DType::f64); };
    const Tensor q = wide(in.q), k = wide(in.k), v = wide(in.v), dy = wide(in.dout);
    const Forward exact = forward(q, k, v, in.options);
    const Backward exact_b = backward(q, k, v, exact, dy, in.options);
    in.options.path = AttentionPath::reference;
    const Forward naive = forward(in.q, in.k, in.v, in.options);
    const Backward naive_b = backward(in.q, in.k, in.v, naive, in.dout, in.options);
    in.options.path = AttentionPath::tiled;
    const Forward fast = forward(in.q, in.k, in.v, in.options);
    const Backward fast_b = backward(in.q, in.k, in.v, fast, in.dout, in.options);
    out.add(exact.out, naive.out, fast.out);
    lse.add(exact.lse, naive.lse, fast.lse);
    // dscores = probs * (dout . v - D): both terms are sums of d products, and D comes from the rounded out. A rounded
    // lse scales all probabilities of a row; where lse is large, a path has to do better than that. (With the default
    // scale, the sqrt(d) of a sum of d products cancels against 1 / sqrt(d).)
    const double scores = 0x1p-23 * largest(dy) * largest(v);
    const double queries = std::sqrt(static_cast<double>(2 * q.shape()[2]));
    dq.add(exact_b.dq, naive_b.dq, fast_b.dq, scores * largest(k));
    dk.add(exact_b.dk, naive_b.dk, fast_b.dk, scores * largest(q) * queries);
    dv.add(exact_b.dv, naive_b.dv, fast_b.dv, 0x1p-24 * std::min(largest(exact.lse), 32.0) * largest(dy));
  }
};

constexpr std::uint64_t kSeeds = 6;

// Checks the rule over a few seeds, with inputs modified by `change`.
template <class Change>
void expect_rule(std::int64_t q_len, std::int64_t kv_len, std::int64_t d, double deviation, const Change& change) {
  Rules rules;
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    Inputs in = random_inputs(seed, q_len, kv_len, d, deviation);
    change(in);
    rules.add(in);
  }
}

TEST(Accuracy, AwkwardLengths) {
  const std::pair<int, int> lengths[] = {{1, 1}, {239, 1}, {113, 203}, {1023, 1024}};
  for (const auto& [q_len, kv_len] : lengths) {
    for (bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(q_len) + " x " + std::to_string(kv_len) + (causal ? " causal" : ""));
      Rules rules;
      for (std::uint64_t seed = 0; seed < (q_len > 1000 ? 1 : kSeeds); ++seed) {
        Inputs in = random_inputs(seed, q_len, kv_len, q_len > 1000 ? 16 : 64);
        in.options.causal = causal;
        in.options.alignment = Alignment::bottom_right;
        rules.add(in);
      }
    }
  }
}

TEST(Accuracy, EveryHeadDimensionNearAVectorWidth) {
  for (std::int64_t d : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 80, 83, 128, 200, 512}) {
    SCOPED_TRACE(d);
    expect_rule(50, 70, d, 1, [](Inputs&) {});
  }
}

TEST(Accuracy, HugeLogits) {
  expect_rule(60, 150, 32, 1, [](Inputs& in) {
    for (float* x = in.q.data(); x != in.q.data() + in.q.size(); ++x) *x *= 100;
  });
}

TEST(Accuracy, InputsTimesAThousand) {
  expect_rule(60, 150, 32, 1000, [](Inputs&) {});
}

TEST(Accuracy, DenormalInputs) {
  expect_rule(60, 150, 32, 1e-39, [](Inputs&) {});
}

TEST(Accuracy, OneTileHighAndTheNextLow) {
  for (float first : {200.0F, -200.0F}) {
    expect_rule(60, 200, 16, 1, [first](Inputs& in) {
      in.mask = Tensor({200});
      for (std::int64_t j = 0; j < 200; ++j) in.mask.data()[j] = j / 64 % 2 ? -first : first;
    });
  }
}

TEST(Accuracy, AllScoresVeryLow) {
  expect_rule(60, 150, 16, 1, [](Inputs& in) { in.mask = make({}, {-20000}); });
}

TEST(Accuracy, RowOfTheLowestFloat) {
  expect_rule(60, 150, 16, 1, [](Inputs& in) { in.mask = make({}, {kLowest}); });
}

TEST(Accuracy, RisingScoresMoveTheMaximumInEveryTile) {
  expect_rule(60, 300, 16, 1, [](Inputs& in) {
    in.mask = Tensor({300});
    for (std::int64_t j = 0; j < 300; ++j) in.mask.data()[j] = 0.5F * static_cast<float>(j);
  });
}

TEST(Accuracy, Infinities) {
  expect_rule(5, 150, 4, 1, [](Inputs& in) {
    in.k.data()[100 * 4] = INFINITY;
    in.v.data()[20 * 4] = -INFINITY;
  });
}

// Products of 40 * 40 * 64 exceed the largest f16 before they are scaled: sums are f32.
TEST(Accuracy, HalfPrecisionProductsDoNotOverflow) {
  for (DType dtype : {DType::f16, DType::bf16}) {
    const Tensor q = make({1, 1, 1, 64}, std::vector<double>(64, 40), dtype);
    const Tensor k = make({1, 1, 2, 64}, std::vector<double>(128, 40), dtype), v = make({1, 1, 2, 1}, {1, 3}, dtype);
    for (AttentionPath path : paths(dtype)) {
      AttentionOptions options;
      options.path = path;
      EXPECT_EQ(values(forward(q, k, v, options).out)[0], 2);
    }
  }
}

// bf16 gradients are sums in f32: their error does not grow with the number of key blocks.
TEST(Accuracy, GradientErrorInBf16DoesNotGrowWithKeys) {
  double errors[2];
  int n = 0;
  for (std::int64_t kv_len : {64, 2048}) {
    const Tensor q = random({1, 1, 8, 16}, 1, DType::bf16), k = random({1, 1, kv_len, 16}, 2, DType::bf16);
    const Tensor v = random({1, 1, kv_len, 16}, 3, DType::bf16), dout = random({1, 1, 8, 16}, 4, DType::bf16);
    const auto wide = [](const Tensor& t) { return converted(t, DType::f64); };
    const Forward exact = forward(wide(q), wide(k), wide(v), {});
    const Backward exact_b = backward(wide(q), wide(k), wide(v), exact, wide(dout), {});
    const Forward f = forward(q, k, v, {});
    const Backward b = backward(q, k, v, f, dout, {});
    const std::vector<double> want = values(exact_b.dq), got = values(b.dq);
    double error = 0, size = 0;
    for (std::size_t e = 0; e < want.size(); ++e) {
      error = std::max(error, std::abs(want[e] - got[e]));
      size = std::max(size, std::abs(want[e]));
    }
    errors[n++] = error / size;
  }
  EXPECT_LE(errors[1], 3 * errors[0] + 1e-6);
}

}  // namespace
}  // namespace qkv::test
