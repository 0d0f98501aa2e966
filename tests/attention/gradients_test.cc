// SPDX-License-Identifier: Apache-2.0
// Gradients against central differences in f64, for every option.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

// The arrays to differentiate by, and options that point to them.
struct Layer {
  Tensor q = random({2, 4, 3, 5}, 1, DType::f64), k = random({2, 2, 4, 5}, 2, DType::f64);
  Tensor v = random({2, 2, 4, 3}, 3, DType::f64), dout = random({2, 4, 3, 3}, 4, DType::f64);
  Tensor mask, sinks, slopes;
  AttentionOptions options;
};

void point_options(Layer& l) {
  if (l.mask.raw()) l.options.mask = l.mask;
  if (l.sinks.raw()) l.options.sinks = l.sinks;
  if (l.slopes.raw()) l.options.alibi_slopes = l.slopes;
}

// The loss whose gradient with respect to out is dout.
double loss(const Layer& l) {
  const std::vector<double> out = values(attention(l.q, l.k, l.v, l.options)), dout = values(l.dout);
  double sum = 0;
  for (std::size_t e = 0; e < out.size(); ++e) sum += out[e] * dout[e];
  return sum;
}

void check(const char* name, Layer& l, Tensor& input, const Tensor& gradient) {
  constexpr double kStep = 1e-5;  // error of the difference: step^2 and 1e-16 / step, about 1e-10
  for (std::int64_t e = 0; e < input.size(); ++e) {
    double& x = input.data<double>()[e];
    const double before = x;
    if (!std::isfinite(before)) continue;  // a mask element of -inf has no derivative
    x = before + kStep;
    const double above = loss(l);
    x = before - kStep;
    const double below = loss(l);
    x = before;
    EXPECT_NEAR(gradient.data<double>()[e], (above - below) / (2 * kStep), 2e-8) << name << "[" << e << "]";
  }
}

void check_gradients(Layer& l) {
  point_options(l);
  const Forward f = forward(l.q, l.k, l.v, l.options);
  const Backward b = backward(l.q, l.k, l.v, f, l.dout, l.options);
  check("dq", l, l.q, b.dq);
  check("dk", l, l.k, b.dk);
  check("dv", l, l.v, b.dv);
  if (b.dmask.raw()) check("dmask", l, l.mask, b.dmask);
  if (l.sinks.raw()) check("dsinks", l, l.sinks, b.dsinks);
}

TEST(Gradients, Plain) {
  Layer l;
  check_gradients(l);
}

TEST(Gradients, Causal) {
  for (Alignment alignment : {Alignment::top_left, Alignment::bottom_right, Alignment::start}) {
    Layer l;
    l.options.causal = true;
    l.options.alignment = alignment;
    if (alignment == Alignment::start) l.options.start = {-1, 2};
    check_gradients(l);
  }
}

TEST(Gradients, WindowAndLengths) {
  Layer l;
  l.options.alignment = Alignment::bottom_right;
  l.options.window_left = 1;
  l.options.window_right = 1;
  l.options.q_lengths = {3, 2};
  l.options.kv_lengths = {4, 3};
  check_gradients(l);
}

TEST(Gradients, ScaleAndSoftcap) {
  Layer l;
  l.options.scale = -0.7;
  l.options.softcap = 1.3;
  check_gradients(l);
}

TEST(Gradients, ScaleZero) {
  Layer l;
  l.options.scale = 0;
  check_gradients(l);
}

TEST(Gradients, EveryMaskBroadcast) {
  const Dims shapes[] = {{},        {4},          {3, 1},       {3, 4},       {4, 1, 1},
                         {4, 3, 4}, {2, 1, 1, 4}, {2, 4, 3, 4}, {1, 4, 1, 4}, {2, 1, 3, 1}};
  for (const Dims& shape : shapes) {
    SCOPED_TRACE(to_string(shape));
    Layer l;
    l.mask = random(shape, 9, DType::f64);
    if (l.mask.size() > 3) l.mask.data<double>()[2] = -std::numeric_limits<double>::infinity();
    l.options.softcap = 2;
    check_gradients(l);
  }
}

TEST(Gradients, BoolMask) {
  Layer l;
  l.mask = bool_mask({3, 4}, {1, 0, 1, 1, 0, 0, 0, 0, 1, 1, 0, 0});
  check_gradients(l);
}

TEST(Gradients, Sinks) {
  Layer l;
  l.sinks = random({4}, 8, DType::f64);
  l.options.causal = true;
  l.options.alignment = Alignment::start;
  l.options.start = {-1};  // the first row sees no key
  check_gradients(l);
}

TEST(Gradients, Alibi) {
  Layer l;
  l.slopes = make({4}, {0.5, 0.25, 0.125, -0.3}, DType::f64);
  l.options.alignment = Alignment::bottom_right;
  check_gradients(l);
}

TEST(Gradients, Dropout) {
  for (const double p : {0.1, 0.5, 0.9}) {
    Layer l;
    l.options.dropout = {.p = p, .seed = 11, .first_sequence = 3};
    l.sinks = random({4}, 8, DType::f64);
    check_gradients(l);
  }
}

TEST(Gradients, AllOptionsTogether) {
  Layer l;
  l.options.dropout = {.p = 0.3, .seed = 4};
  l.slopes = make({4}, {0.5, 0.25, 0.125, 0}, DType::f64);
  l.sinks = random({4}, 8, DType::f64);
  l.mask = random({4, 1, 4}, 9, DType::f64);
  l.options.causal = true;
  l.options.alignment = Alignment::bottom_right;
  l.options.window_left = 2;
  l.options.kv_lengths = {4, 3};
  l.options.softcap = 1.5;
  l.options.scale = 0.9;
  check_gradients(l);
}

TEST(Gradients, OddHeadDimensions) {
  const std::pair<int, int> dims[] = {{8, 6}, {6, 8}, {83, 7}, {1, 1}};
  for (const auto& [d_k, d_v] : dims) {
    Layer l;
    l.q = random({1, 1, 3, d_k}, 1, DType::f64);
    l.k = random({1, 1, 3, d_k}, 2, DType::f64);
    l.v = random({1, 1, 3, d_v}, 3, DType::f64);
    l.dout = random({1, 1, 3, d_v}, 4, DType::f64);
    check_gradients(l);
  }
}

// Leaving out some gradients does not change the others.
TEST(Gradients, EachCanBeRequestedSeparately) {
  for (AttentionPath path : paths()) {
    const Tensor q = random({1, 2, 70, 5}, 1), k = random({1, 1, 80, 5}, 2), v = random({1, 1, 80, 4}, 3);
    const Tensor dout = random({1, 2, 70, 4}, 4), mask = random({80}, 5), sinks = random({2}, 6);
    AttentionOptions options;
    options.mask = mask;
    options.sinks = sinks;
    options.path = path;
    const Forward f = forward(q, k, v, options);
    const Backward all = backward(q, k, v, f, dout, options);
    Tensor dq(q.shape()), dk(k.shape()), dv(v.shape()), dmask(mask.shape()), dsinks(sinks.shape());
    const auto run = [&](const AttentionGradients& g) { attention_backward(q, k, v, f.out, f.lse, dout, options, g); };
    run({dq, {}, {}, {}, {}});
    run({{}, dk, {}, {}, {}});
    run({{}, {}, dv, {}, {}});
    run({{}, {}, {}, dmask, {}});
    run({{}, {}, {}, {}, dsinks});
    EXPECT_TRUE(same_bits(all.dq, dq));
    EXPECT_TRUE(same_bits(all.dk, dk));
    EXPECT_TRUE(same_bits(all.dv, dv));
    EXPECT_TRUE(same_bits(all.dmask, dmask));
    EXPECT_TRUE(same_bits(all.dsinks, dsinks));
  }
}

// Gradients in the inputs' storage type are the f32 gradients, rounded once.
TEST(Gradients, InStorageTypes) {
  for (AttentionPath path : paths()) {
    for (DType dtype : {DType::bf16, DType::f16}) {
      const Tensor q = random({1, 2, 9, 6}, 1, dtype), k = random({1, 1, 70, 6}, 2, dtype);
      const Tensor v = random({1, 1, 70, 4}, 3, dtype), dout = random({1, 2, 9, 4}, 4, dtype);
      AttentionOptions options;
      options.path = path;
      const Forward f = forward(q, k, v, options);
      const Backward wide = backward(q, k, v, f, dout, options);
      Tensor dq(q.shape(), dtype), dk(k.shape(), dtype), dv(v.shape(), dtype);
      attention_backward(q, k, v, f.out, f.lse, dout, options, {dq, dk, dv, {}, {}});
      EXPECT_TRUE(same_bits(converted(wide.dq, dtype), dq));
      EXPECT_TRUE(same_bits(converted(wide.dk, dtype), dk));
      EXPECT_TRUE(same_bits(converted(wide.dv, dtype), dv));
      EXPECT_TRUE(same_bits(converted(f.out, dtype), attention(q, k, v, options)));
    }
  }
}

}  // namespace
}  // namespace qkv::test
