// SPDX-License-Identifier: Apache-2.0
// Hand-worked values, on every device.
#include <gtest/gtest.h>

#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

#include "device/operations.h"

namespace qkv::test {
namespace {

// Every device, with its stream type as compute dtype.
std::vector<Machine> machines() {
  std::vector<Machine> list;
  for (const DeviceInfo& info : devices()) {
    Device& device = *find_device(info.name);
    list.push_back({device, device.stream_type(), device.stream_type()});
  }
  return list;
}
// The allowed error of numbers of about 1.
double rounding(const Machine& m) { return m.operand == DType::f64 ? 1e-14 : 1e-6; }

void expect_numbers(const Machine& m, const Numbers& found, const Numbers& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], rounding(m) * (1 + std::abs(expected[i]))) << m.device.name() << " " << i;
}

TEST(WeightGradient, SumsLeavesInTheOrderOfTheSteps) {
  const std::vector<std::int64_t> lengths{3, 0, 2};
  const Sequences s{3, 3, lengths};
  const std::int64_t in = 5, out = 4, rows = s.rows();
  for (const Machine& m : machines()) {
    const Numbers x = m.normals(rows * in, 1);
    Numbers dy = m.normals(rows * out, 4), expected(in * out, 0.0), bias(out, 0.0);
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t r = b * s.ctx; r < b * s.ctx + s.length(b); ++r)
        for (std::int64_t j = 0; j < out; ++j) {
          for (std::int64_t i = 0; i < in; ++i)
            expected[static_cast<std::size_t>(i * out + j)] +=
                x[static_cast<std::size_t>(r * in + i)] * dy[static_cast<std::size_t>(r * out + j)];
          bias[static_cast<std::size_t>(j)] += dy[static_cast<std::size_t>(r * out + j)];
        }
    for (const std::int64_t r : {3, 4, 5, 8})  // padding is never read
      for (std::int64_t j = 0; j < out; ++j) dy[static_cast<std::size_t>(r * out + j)] = std::nan("");
    const std::vector<SumStep> tree{{0, -1, true, 0}, {1, -1, true, 1}, {1, -1, false, 2}, {0, 1, false, 0}};
    for (const auto& steps : {in_order(3), tree})
      for (const bool second : {false, true}) {
        const Results found = weight_gradients(m, {s, steps, second}, in, out, 0, x, dy);
        expect_numbers(m, found[0].values, expected);
        expect_numbers(m, found[1].values, bias);
      }
  }
}

TEST(Norm, HandWorkedRows) {
  for (const Machine& m : machines()) {
    // mean square 25 / 4
    expect_numbers(m, norm(m, {Norm::rmsnorm, 1e-20, 1, 4}, {3, -4, 0, 0})[0].values, {1.2, -1.6, 0, 0});
    // mean 2, deviation 1
    expect_numbers(m, norm(m, {Norm::layernorm, 1e-20, 1, 2, {10, 20}, {0.5, -0.5}}, {1, 3})[0].values, {-9.5, 19.5});
    // two groups of two, of mean square 12.5 and 2
    expect_numbers(m, group_norm(m, 1, {2, 2, 0, {2, 1}}, {3, 4, 2, 0})[0].values,
                   {6 / std::sqrt(12.501), 4 / std::sqrt(12.501), 4 / std::sqrt(2.001), 0});
  }
}

// R46 of the reports: rank 3 is still rows; the gain's gradient sums over all six of them.
TEST(Norm, GainGradientSumsOverAllRowsOfARank3Input) {
  for (const Machine& m : machines()) {
    const Numbers x = m.normals(24, 1), dy = m.normals(24, 2);
    const NormCase n{Norm::layernorm, 1e-5, 6, 4};
    const Numbers y = norm(m, n, x)[0].values;
    Numbers by_hand(4);
    for (std::size_t i = 0; i < 24; ++i) by_hand[i % 4] += dy[i] * y[i];
    expect_numbers(m, norm_backward(m, {{2, 3}, in_order(2)}, n, x, dy)[3].values, by_hand);
    expect_numbers(m, norm_backward(m, {{1, 6}, in_order(1)}, n, x, dy)[3].values, by_hand);
  }
}

TEST(Activation, HandWorkedValues) {
  for (const Machine& m : machines()) {
    const auto value = [&](Activation kind, double u) { return activation(m, {kind, false, 1, 1}, {u})[0].values[0]; };
    const auto gated = [&](Activation kind, double u, double gate) {
      return activation(m, {kind, true, 1, 1}, {gate, u})[0].values[0];
    };
    const double one = rounding(m);
    EXPECT_EQ(value(Activation::relu, -2), 0);
    EXPECT_EQ(value(Activation::relu, 2), 2);
    EXPECT_EQ(value(Activation::relu2, -3), 0);
    EXPECT_EQ(value(Activation::relu2, 3), 9);
    EXPECT_EQ(value(Activation::gelu, 0), 0);
    for (const double u : {-3.0, -0.5, 1.0, 2.0, 30.0, -30.0}) {
      EXPECT_NEAR(value(Activation::gelu, u),
                  0.5 * u * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u))), 30 * one);
      EXPECT_NEAR(value(Activation::gelu_erf, u), 0.5 * u * std::erfc(-u / std::sqrt(2)), 30 * one);
      EXPECT_NEAR(value(Activation::silu, u), u / (1 + std::exp(-u)), 30 * one);
    }
    EXPECT_EQ(gated(Activation::silu, 3, 0), 0);
    EXPECT_NEAR(gated(Activation::silu, 3, 1), 3 / (1 + std::exp(-1.0)), 3 * one);
    EXPECT_EQ(gated(Activation::relu, 3, 2), 6);
    EXPECT_EQ(gated(Activation::relu2, 3, -2), 0);
    EXPECT_TRUE(std::isnan(value(Activation::relu, std::numeric_limits<double>::quiet_NaN())));
  }
}

TEST(Embedding, ForwardAndBackwardByHand) {
  const std::vector<std::int64_t> lengths{2, 3};
  const Numbers table{1, 2, 10, 20, 100, 200}, positions{0.5, 0.25, 1.5, 1.25, 2.5, 2.25, 9, 9};
  const EmbeddingCase c{{2, 3, lengths}, {1, 1, -7, 0, 1, 2}, 0, 3, 4, 2, 1, table, positions};  // the third is padding
  for (const Machine& m : machines()) {
    EXPECT_EQ(embed(m, c)[0].values, (Numbers{10.5, 20.25, 11.5, 21.25, 0, 0, 1.5, 2.25, 11.5, 21.25, 102.5, 202.25}));
    EmbeddingCase late{{1, 1}, {2}, 3, 3, 4, 2, 1, table, positions};
    EXPECT_EQ(embed(m, late)[0].values, (Numbers{109, 209}));
    late.scale = 0.5;
    EXPECT_EQ(embed(m, late)[0].values, (Numbers{59, 109}));
    const Numbers dx{1, 2, 3, 4, 50, 60, 5, 6, 7, 8, 9, 10};
    for (const auto& steps :
         {in_order(2), std::vector<SumStep>{{0, -1, true, 0}, {1, -1, true, 1}, {0, 1, false, 0}}}) {
      const Results found = embed_backward(m, {c.s, steps, true}, c, dx);
      EXPECT_EQ(found[0].values, (Numbers{5, 6, 11, 14, 9, 10}));
      EXPECT_EQ(found[1].values, (Numbers{6, 8, 10, 12, 9, 10, 0, 0}));
      EXPECT_EQ(found[2].values, Numbers(6, 0.0));
      EXPECT_EQ(found[3].values, Numbers{0}) << "no touched rows are left in slot 1";
    }
  }
}

// Slot 1 is added to slot 0, used again, and contains a partial sum when the pass ends.
TEST(Embedding, APassMayEndWithPartialSums) {
  const Dims table{3, 1}, none{0, 1};
  const Sequences s{3, 1};
  const std::vector<std::int32_t> tokens{0, 1, 2};
  const std::vector<SumStep> steps{{0, -1, true, 0}, {1, -1, true, 1}, {0, 1, false, 0}, {1, -1, true, 2}};
  for (const Machine& m : machines()) {
    Array first = m.stream(table), second = m.stream(table, Numbers(3));
    std::vector<std::int32_t> lists[kSumSlots];
    std::vector<std::int32_t>* touched[kSumSlots];
    for (std::size_t i = 0; i < std::size(lists); ++i) touched[i] = &lists[i];
    m.device.embed_backward(s, steps, tokens, 1, m.stream(Dims{3, 1}, {5, 7, 9}), table, {first.raw(), second.raw()},
                            touched, none, {});
    EXPECT_EQ(first.values(), (Numbers{5, 7, 0}));
    EXPECT_EQ(second.values(), (Numbers{0, 0, 9}));
    EXPECT_FALSE(lists[1].empty());
  }
}

TEST(CrossEntropy, HandWorkedRow) {
  for (const Machine& m : machines()) {
    // softmax([ln 1, ln 2, ln 5]) = [1, 2, 5] / 8
    const Numbers logits{0, std::log(2.0), std::log(5.0), 99, 7, 7, 7, 99};
    const Results found = cross_entropy(m, 3, 4, logits, {1, -1}, 0.5);
    expect_numbers(m, found[0].values, {std::log(4.0), 0});
    EXPECT_EQ(found[0].values[1], 0.0);
    expect_numbers(m, found[1].values, {0.5 / 8, 0.5 * (2.0 / 8 - 1), 0.5 * 5 / 8, 0, 0, 0, 0, 0});
  }
}

TEST(CrossEntropy, LargeLogitsStayFinite) {
  for (const Machine& m : machines()) {
    const Results found = cross_entropy(m, 3, 3, {1e30, -1e30, 0, 3e38, 3e38, -3e38}, {0, 0}, 1);
    EXPECT_EQ(found[0].values[0], 0.0);
    EXPECT_NEAR(found[0].values[1], std::log(2.0), 1e-7);
    for (const double g : found[1].values) EXPECT_TRUE(std::isfinite(g));
  }
}

TEST(CrossEntropy, NanInALogitIsDetected) {
  for (const Machine& m : machines())
    EXPECT_TRUE(
        std::isnan(cross_entropy(m, 3, 3, {0, std::numeric_limits<double>::quiet_NaN(), 1}, {0}, 1)[2].values[0]));
}

// x [heads of `head_dim` numbers] of one token at a position, rotated with base 10000 -> the rotated x
Numbers rotated(const Machine& m, std::int64_t head_dim, std::int64_t position, const Numbers& x, double base = 10000,
                bool back = false) {
  const std::int64_t half = head_dim / 2;
  Numbers cosines, sines;  // [position + 1, half]
  for (std::int64_t p = 0; p <= position; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(p) * std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(head_dim));
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  const Dims shape{position + 1, half};
  const Array cosine = m.stream(shape, cosines), sine = m.stream(shape, sines);
  const auto width = static_cast<std::int64_t>(x.size());
  Array y = m.operands(Dims{1, width}, x);
  m.device.rotary({1, 1}, {cosine, sine}, {width / head_dim, head_dim, head_dim}, position, back, y);
  return y.values();
}

// R31 of the reports: x = [1, 2, 3, 4] at position 1, base 10000 (angles 1 and 0.01).
TEST(Rotary, RotatesHalvesNotNeighbours) {
  for (const Machine& m : machines()) {
    const Numbers x = rotated(m, 4, 1, {1, 2, 3, 4});
    const double half[] = {-1.9841106, 1.9599007, 2.4623779, 4.0197997};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(x[i], half[i], 3e-7);
    // Checkpoints with adjacent pairs: the same rotation between two reorderings.
    const Numbers y = rotated(m, 4, 1, {1, 3, 2, 4});
    const double neighbours[] = {-1.1426397, 2.9598507, 1.9220756, 4.0297995};
    for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(y[i], neighbours[i], 3e-7);
  }
}

TEST(Rotary, PositionZeroIsTheIdentityAndBackwardInverts) {
  const Sequences s{2, 3};
  const RotaryCase c{{2, 6, 6}, 0};
  Numbers x(2 * 3 * 2 * 6);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(i % 7) - 3;
  for (const Machine& m : machines()) {
    const Numbers y = rotary(m, s, c, false, x)[0].values;
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(y[b * 36 + i], x[b * 36 + i]);
    EXPECT_NE(y, x);
    expect_numbers(m, rotary(m, s, c, true, y)[0].values, x);
  }
}

// The defining property of a position code: q . k depends only on the distance.
TEST(Rotary, DotProductsDependOnTheDistance) {
  for (const Machine& m : machines()) {
    const auto dot_at = [&](std::int64_t i, std::int64_t j) {
      return dot(rotated(m, 8, i, {1, -2, 0.5, 3, 2, 1, -1, 0.25}), rotated(m, 8, j, {0.5, 1, 2, -1, 1, 1, 3, -2}));
    };
    EXPECT_NEAR(dot_at(5, 2), dot_at(33, 30), m.operand == DType::f64 ? 1e-12 : 1e-4);
    EXPECT_GT(std::abs(dot_at(5, 2) - dot_at(5, 3)), 1e-3);
  }
}

}  // namespace
}  // namespace qkv::test
