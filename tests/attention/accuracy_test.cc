// SPDX-License-Identifier: Apache-2.0
// The rule of flash-attention's tests: against f64, the fast path's error is at most twice that of the naive path in
// the same precision, plus one unit in the last place of the largest value.
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

void expect_accurate(const char* name, const ConstView& exact, const ConstView& naive, const ConstView& fast) {
  const std::vector<double> e = values(exact), n = values(naive), f = values(fast);
  double largest = 0, naive_error = 0, fast_error = 0;
  for (std::size_t x = 0; x < e.size(); ++x) {
    ASSERT_EQ(std::isnan(n[x]), std::isnan(f[x])) << name << "[" << x << "]";
    if (std::isnan(n[x]) || std::isinf(e[x])) continue;
    largest = std::max(largest, std::abs(e[x]));
    naive_error = std::max(naive_error, std::abs(n[x] - e[x]));
    fast_error = std::max(fast_error, std::abs(f[x] - e[x]));
  }
  EXPECT_LE(fast_error, 2 * naive_error + unit_in_the_last_place(largest)) << name << ", naive " << naive_error;
}

struct Inputs {
  Tensor q, k, v, dout, mask;
  AttentionOptions options;
};

Inputs random_inputs(std::int64_t q_len, std::int64_t kv_len, std::int64_t d, double deviation = 1) {
  return {random({1, 2, q_len, d}, 1, DType::f32, deviation),
          random({1, 1, kv_len, d}, 2, DType::f32, deviation),
          random({1, 1, kv_len, d}, 3, DType::f32, deviation),
          random({1, 2, q_len, d}, 4, DType::f32, deviation),
          {},
          {}};
}

void expect_rule(Inputs& in) {
  if (in.mask.raw()) in.options.mask = in.mask;
  const auto wide = [](const Tensor& t) { return converted(t, DType::f64); };
  const Tensor q = wide(in.q), k = wide(in.k), v = wide(in.v), dout = wide(in.dout);
  const Forward exact = forward(q, k, v, in.options);
  const Backward exact_b = backward(q, k, v, exact, dout, in.options);
  in.options.path = AttentionPath::reference;
  const Forward naive = forward(in.q, in.k, in.v, in.options);
  const Backward naive_b = backward(in.q, in.k, in.v, naive, in.dout, in.options);
  in.options.path = AttentionPath::tiled;
  const Forward fast = forward(in.q, in.k, in.v, in.options);
  const Backward fast_b = backward(in.q, in.k, in.v, fast, in.dout, in.options);
  expect_accurate("out", exact.out, naive.out, fast.out);
  expect_accurate("lse", exact.lse, naive.lse, fast.lse);
  expect_accurate("dq", exact_b.dq, naive_b.dq, fast_b.dq);
  expect_accurate("dk", exact_b.dk, naive_b.dk, fast_b.dk);
  expect_accurate("dv", exact_b.dv, naive_b.dv, fast_b.dv);
}

TEST(Accuracy, AwkwardLengths) {
  const std::pair<int, int> lengths[] = {{1, 1}, {239, 1}, {113, 203}, {1023, 1024}};
  for (const auto& [q_len, kv_len] : lengths) {
    for (bool causal : {false, true}) {
      SCOPED_TRACE(std::to_string(q_len) + " x " + std::to_string(kv_len) + (causal ? " causal" : ""));
      Inputs in = random_inputs(q_len, kv_len, q_len > 1000 ? 16 : 64);
      in.options.causal = causal;
      in.options.alignment = Alignment::bottom_right;
      expect_rule(in);
    }
  }
}

TEST(Accuracy, EveryHeadDimensionNearAVector) {
  for (std::int64_t d : {1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 80, 83, 128, 200, 512}) {
    SCOPED_TRACE(d);
    Inputs in = random_inputs(50, 70, d);
    expect_rule(in);
  }
}

TEST(Accuracy, HugeLogits) {
  Inputs in = random_inputs(60, 150, 32);
  for (float* x = in.q.data(); x != in.q.data() + in.q.size(); ++x) *x *= 100;
  expect_rule(in);
}

TEST(Accuracy, InputsTimesAThousand) {
  Inputs in = random_inputs(60, 150, 32, 1000);
  expect_rule(in);
}

TEST(Accuracy, DenormalInputs) {
  Inputs in = random_inputs(60, 150, 32, 1e-39);
  expect_rule(in);
}

TEST(Accuracy, OneTileHighAndTheNextLow) {
  Inputs in = random_inputs(60, 200, 16);
  in.mask = Tensor({200});
  for (std::int64_t j = 0; j < 200; ++j) in.mask.data()[j] = j / 64 % 2 ? -200.0F : 200.0F;
  expect_rule(in);
  for (std::int64_t j = 0; j < 200; ++j) in.mask.data()[j] = j / 64 % 2 ? 200.0F : -200.0F;
  expect_rule(in);
}

TEST(Accuracy, AllScoresVeryLow) {
  Inputs in = random_inputs(60, 150, 16);
  in.mask = make({}, {-20000});
  expect_rule(in);
}

TEST(Accuracy, RowOfTheLowestFloat) {
  Inputs in = random_inputs(60, 150, 16);
  in.mask = make({}, {kLowest});
  expect_rule(in);
}

TEST(Accuracy, RisingScoresMoveTheMaximumInEveryTile) {
  Inputs in = random_inputs(60, 300, 16);
  in.mask = Tensor({300});
  for (std::int64_t j = 0; j < 300; ++j) in.mask.data()[j] = 0.5F * static_cast<float>(j);
  expect_rule(in);
}

TEST(Accuracy, Infinities) {
  Inputs in = random_inputs(5, 150, 4);
  in.k.data()[100 * 4] = INFINITY;
  expect_rule(in);
  in.v.data()[20 * 4] = -INFINITY;
  expect_rule(in);
}

// Products of 40 * 40 * 64 pass the largest f16 before the scale makes them small: sums are f32.
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
