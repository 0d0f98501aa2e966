// SPDX-License-Identifier: Apache-2.0
// Every backward pass of the reference device compared with central differences of its forward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "device/operations.h"

namespace qkv::test {
namespace {

Machine reference() { return {*find_device("reference"), DType::f64}; }

// Compares d(loss)/d(x[i]) by central differences, for each i, with `gradient`.
void expect_gradient(Numbers& x, const std::function<double()>& loss, const Numbers& gradient,
                     const std::string& what) {
  constexpr double h = 1e-5;
  ASSERT_EQ(x.size(), gradient.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double kept = x[i];
    x[i] = kept + h;
    const double above = loss();
    x[i] = kept - h;
    const double below = loss();
    x[i] = kept;
    EXPECT_NEAR(gradient[i], (above - below) / (2 * h), 1e-8 * (1 + std::abs(gradient[i]))) << what << " " << i;
  }
}

constexpr Activation kActivations[] = {Activation::relu, Activation::relu2, Activation::gelu, Activation::silu,
                                       Activation::gelu_erf};

TEST(Norm, GradientsAreCentralDifferences) {
  const std::int64_t rows = 4, d = 21;
  const Sum sum{{2, 2}, in_order(2)};
  for (const Norm kind : {Norm::rmsnorm, Norm::layernorm})
    for (const bool affine : {false, true}) {
      NormCase n{kind, 1e-3, rows, d};
      if (affine) n.gain = normals(d, 2), n.bias = normals(d, 3);
      Numbers x = normals(rows * d, 1), delta = normals(rows * d, 5);
      const Numbers dy = normals(rows * d, 4);
      const auto loss = [&] { return dot(norm(reference(), n, x)[0].values, dy); };
      const Results found = norm_backward(reference(), sum, n, x, dy);
      const Numbers& dx = found[0].values;
      EXPECT_EQ(found[1].values, dx);
      for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_DOUBLE_EQ(found[2].values[i], 5.0 + dx[i]);
      expect_gradient(x, loss, dx, "x");
      // add_norm is the norm of the sum.
      Numbers both = x;
      for (std::size_t i = 0; i < both.size(); ++i) both[i] += delta[i];
      EXPECT_EQ(add_norm(reference(), n, x, delta)[1].values, norm(reference(), n, both)[0].values);
      if (!affine) continue;
      expect_gradient(n.gain, loss, found[3].values, "gain");
      expect_gradient(n.bias, loss, found[4].values, "bias");
    }
}

TEST(GroupNorm, GradientsAreCentralDifferences) {
  const Sum sum{{2, 2}, in_order(2)};
  for (const bool gain : {false, true}) {
    GroupCase g{3, 5, 2};
    if (gain) g.gain = normals(5, 2);
    Numbers x = normals(4 * 15, 1);
    const Numbers dy = normals(4 * 15, 4);
    const auto loss = [&] { return dot(group_norm(reference(), 4, g, x)[0].values, dy); };
    const Results found = group_norm_backward(reference(), sum, g, x, dy);
    expect_gradient(x, loss, found[0].values, "x");
    if (gain) expect_gradient(g.gain, loss, found[1].values, "gain");
  }
}

TEST(Activation, GradientsAreCentralDifferences) {
  for (const Activation kind : kActivations)
    for (const bool gated : {false, true}) {
      const ActivationCase c{kind, gated, 3, 23};
      Numbers up = normals(3 * c.width(), 2);
      const Numbers da = normals(3 * 23, 3);
      const auto loss = [&] { return dot(activation(reference(), c, up)[0].values, da); };
      expect_gradient(up, loss, activation_backward(reference(), c, up, da)[0].values,
                      std::to_string(static_cast<int>(kind)) + (gated ? " gated" : ""));
    }
}

TEST(Rotary, GradientIsTheInverseRotation) {
  const Sequences s{2, 3};
  for (const std::int64_t rotated : {8, 4, 2}) {
    const RotaryCase c{{3, 8, rotated}, 2, 1.25, 1};
    Numbers x = normals(s.rows() * 24, 1);
    const Numbers dy = normals(s.rows() * 24, 2);
    const auto loss = [&] { return dot(rotary(reference(), s, c, false, x)[0].values, dy); };
    expect_gradient(x, loss, rotary(reference(), s, c, true, dy)[0].values, "x");
  }
}

TEST(Product, GradientsAreCentralDifferences) {
  const Sum sum{{2, 2}, in_two_slots(2)};
  for (const bool transposed : {false, true}) {
    const ProductSizes p{4, 5, 7, 7, transposed};
    Numbers w = normals(35, 1), bias = normals(7, 2), x = normals(20, 3);
    const Numbers dy = normals(28, 4);
    const auto loss = [&] { return dot(product(reference(), p, w, bias, x)[0].values, dy); };
    expect_gradient(x, loss, product_backward(reference(), p, w, dy)[0].values, "x");
    const Results found = weight_gradients(reference(), sum, 5, 7, 1, x, dy);
    expect_gradient(w, loss, found[0].values, "w");
    expect_gradient(bias, loss, found[1].values, "bias");
  }
}

TEST(Attention, GradientsAreCentralDifferences) {
  const std::vector<std::int64_t> lengths{4, 2};
  for (const bool options : {false, true}) {
    AttentionCase c{{2, 4, lengths}, 4, 2, 3, 5, {}};
    c.options.causal = true;
    c.options.alignment = Alignment::top_left;
    if (options) {
      c.options.window_left = 2;
      c.options.softcap = 1.5;
      c.options.scale = 0.9;
      c.options.dropout = {0.25, 3, 1};
      c.slopes = {0.5, 0.25, 0.125, 0.0625};
      c.sinks = normals(4, 3);
    }
    const Sum sum{c.s, in_two_slots(2)};
    Numbers qkv = normals(8 * (c.q() + c.k() + c.v()), 1);
    const Numbers dout = normals(8 * c.out(), 2);
    const auto loss = [&] { return dot(attention(reference(), c, sum, qkv, dout)[0].values, dout); };
    const Results found = attention(reference(), c, sum, qkv, dout);
    expect_gradient(qkv, loss, found[2].values, "qkv");
    if (options) expect_gradient(c.sinks, loss, found[3].values, "sinks");
  }
}

TEST(Embedding, GradientsAreCentralDifferences) {
  const std::vector<std::int64_t> lengths{2, 3};
  EmbeddingCase c{{2, 3, lengths}, {1, 1, -7, 0, 1, 2}, 0, 3, 4, 5, 1.5, normals(15, 1), normals(20, 2)};
  const Numbers dx = normals(30, 3);
  for (const std::vector<SumStep>& steps : {in_order(2), in_two_slots(2)}) {
    const auto loss = [&] { return dot(embed(reference(), c)[0].values, dx); };
    const Results found = embed_backward(reference(), {c.s, steps, true}, c, dx);
    expect_gradient(c.table, loss, found[0].values, "table");
    expect_gradient(c.positions, loss, found[1].values, "positions");
  }
}

TEST(CrossEntropy, GradientsAreCentralDifferences) {
  const std::vector<std::int32_t> targets{1, -1, 6};
  Numbers logits = normals(3 * 8, 1);
  const auto loss = [&] {
    return dot(cross_entropy(reference(), 7, 8, logits, targets, 0.5)[0].values, Numbers(3, 0.5));
  };
  expect_gradient(logits, loss, cross_entropy(reference(), 7, 8, logits, targets, 0.5)[1].values, "logits");
}

TEST(Softcap, GradientsAreCentralDifferences) {
  Numbers x = normals(20, 1);
  const Numbers dy = normals(20, 2);
  const auto loss = [&] { return dot(softcap(reference(), 1.5, x, dy)[0].values, dy); };
  expect_gradient(x, loss, softcap(reference(), 1.5, x, dy)[1].values, "x");
}

}  // namespace
}  // namespace qkv::test
