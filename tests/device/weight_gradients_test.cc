// SPDX-License-Identifier: Apache-2.0
// CPU gradients of f32 weight matrices at widths where row starts are multiples of 4 KB apart; such operands are copied
// first (cpu/weight_gradients.cc).
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/random.h"
#include "device/device.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

using Floats = std::vector<float>;

// Three sequences: one longer than the rows copied at a time, one empty; leaves 1 and 2 are summed before they join
// leaf 0.
const std::vector<std::int64_t> kLengths{1100, 0, 70};
const Sequences kSequences{3, 1100, kLengths};
const std::vector<SumStep> kTree{{0, -1, true, 0}, {1, -1, true, 1}, {1, -1, false, 2}, {0, 1, false, 0}};

// Normal numbers, at least as many as any operand has; dy starts at a different offset than x.
const float* numbers() {
  static const Floats all = [] {
    const Random random(23);
    Floats x(static_cast<std::size_t>(kSequences.rows() * 2049));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
    return x;
  }();
  return all.data();
}
const float* x_of() { return numbers(); }
const float* dy_of() { return numbers() + kSequences.ctx; }

struct Shape {
  std::int64_t in, ldx, out, ldy;
};
const Shape kShapes[] = {{1024, 1024, 45, 45},    // x is copied
                         {45, 45, 1024, 1024},    // dy
                         {1030, 2048, 70, 1024},  // x
                         {70, 1024, 500, 2048},   // dy
                         {40, 1023, 50, 1025}};   // neither

WeightGradient gradient_of(const Shape& shape, float* first, float* second) {
  const std::int64_t rows = kSequences.rows();
  return {{x_of(), DType::f32, Dims{rows, shape.in}, Dims{shape.ldx, 1}},
          {dy_of(), DType::f32, Dims{rows, shape.out}, Dims{shape.ldy, 1}},
          {first, second}};
}
void add(std::span<const SumStep> steps, const WeightGradient& g) {
  find_device("cpu")->weight_gradients(kSequences, steps, {&g, 1});
}

TEST(WeightGradientF32, IsTheSumOverRowsAtAliasingWidths) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.in << " x " << shape.out);
    const float *x = x_of(), *dy = dy_of();  // [rows, ldx], [rows, ldy]
    Floats dw(static_cast<std::size_t>(shape.in * shape.out), 7.0f);
    add(kTree, gradient_of(shape, dw.data(), nullptr));
    const Random random(5);
    for (std::uint64_t n = 0; n < 400; ++n) {  // elements, including the last
      const auto pick = [&](std::uint64_t k, std::int64_t size) {
        return n == 0 ? size - 1 : static_cast<std::int64_t>(random.bits(2 * n + k) % static_cast<std::uint64_t>(size));
      };
      const std::int64_t i = pick(0, shape.in), j = pick(1, shape.out);
      double sum = 0, size = 1;
      for (std::int64_t b = 0; b < kSequences.batch; ++b)
        for (std::int64_t r = b * kSequences.ctx; r < b * kSequences.ctx + kSequences.length(b); ++r) {
          const double term = static_cast<double>(x[r * shape.ldx + i]) * static_cast<double>(dy[r * shape.ldy + j]);
          sum += term;
          size += std::abs(term);
        }
      ASSERT_NEAR(dw[static_cast<std::size_t>(i * shape.out + j)], sum, 1e-6 * size) << i << " " << j;
    }
  }
}

TEST(WeightGradientF32, HasTheSameBitsAtAnyThreadCountAndStepByStep) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(testing::Message() << shape.in << " x " << shape.out);
    const auto size = static_cast<std::size_t>(shape.in * shape.out);
    Floats expected(size), second(size);
    set_num_threads(1);
    add(kTree, gradient_of(shape, expected.data(), second.data()));
    for (const int threads : {2, 3}) {
      set_num_threads(threads);
      Floats found(size);
      add(kTree, gradient_of(shape, found.data(), nullptr));  // the partial sum is kept in the tasks' memory
      EXPECT_EQ(found, expected) << threads << " threads";
    }
    Floats found(size);
    for (const SumStep& step : kTree) add({&step, 1}, gradient_of(shape, found.data(), second.data()));
    EXPECT_EQ(found, expected) << "step by step";
    set_num_threads(0);
  }
}

}  // namespace
}  // namespace qkv
