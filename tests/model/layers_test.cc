// SPDX-License-Identifier: Apache-2.0
// Each layer's backward against central differences of its forward, in f64; hand-worked values.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "core/random.h"
#include "model/activation.h"
#include "model/cross_entropy.h"
#include "model/embedding.h"
#include "model/mlp.h"
#include "model/norm.h"

namespace qkv {
namespace {

using Doubles = std::vector<double>;

Doubles normals(std::int64_t count, std::uint64_t stream) {
  const Random random(11, stream);
  Doubles x(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
  return x;
}

double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// d(loss)/d(x[i]) by central differences for each i, against `gradient`.
void expect_gradient(Doubles& x, const std::function<double()>& loss, const Doubles& gradient, const char* what) {
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

// One step of `batch` sequences, all in one slot, in order.
std::vector<SumStep> in_order(std::int64_t batch) {
  std::vector<SumStep> steps;
  for (std::int64_t b = 0; b < batch; ++b) steps.push_back({0, -1, b == 0, b});
  return steps;
}

TEST(WeightGradient, SumsLeavesAsTheStepsSay) {
  const std::vector<std::int64_t> lengths{3, 0, 2};
  const Sequences s{3, 3, lengths};
  const std::int64_t in = 5, out = 4, rows = s.rows();
  Doubles x = normals(rows * in, 1), dy = normals(rows * out, 4), expected(in * out, 0.0), bias(out, 0.0);
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t r = b * s.ctx; r < b * s.ctx + s.length(b); ++r)
      for (std::int64_t j = 0; j < out; ++j) {
        for (std::int64_t i = 0; i < in; ++i) expected[i * out + j] += x[r * in + i] * dy[r * out + j];
        bias[j] += dy[r * out + j];
      }
  for (std::int64_t r : {3, 4, 5, 8})  // padding is never read
    for (std::int64_t j = 0; j < out; ++j) dy[r * out + j] = std::nan("");
  Doubles dw(in * out, 7.0), db(out, 7.0), other(in * out), other_bias(out);
  const std::vector<SumStep> tree{{0, -1, true, 0}, {1, -1, true, 1}, {1, -1, false, 2}, {0, 1, false, 0}};
  for (const auto& steps : {in_order(3), tree})
    for (double* second : {static_cast<double*>(nullptr), other.data()}) {
      const WeightGradient<double, double> g{in, out, x.data(), in, dy.data(), out, {dw.data(), second}};
      add_weight_gradients<double, double>(s, steps, {&g, 1});
      bias_backward<double, double>(s, steps, out, dy.data(), out, {db.data(), other_bias.data()});
      for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(dw[i], expected[i], 1e-14);
      for (std::size_t i = 0; i < bias.size(); ++i) EXPECT_NEAR(db[i], bias[i], 1e-14);
    }
}

TEST(Norm, GradientsAreCentralDifferences) {
  const std::int64_t rows = 4, d = 21;
  const Sequences s{2, 2};
  for (const Norm kind : {Norm::rmsnorm, Norm::layernorm})
    for (const bool affine : {false, true}) {
      Doubles x = normals(rows * d, 1), gain = normals(d, 2), bias = normals(d, 3), dy = normals(rows * d, 4);
      Doubles y(x.size()), statistics(2 * rows), dx(x.size()), dgain(d), dbias(d);
      const auto loss = [&] {
        norm_forward<double, double>(kind, 1e-3, rows, d, x.data(), affine ? gain.data() : nullptr,
                                     affine ? bias.data() : nullptr, y.data(), statistics.data());
        return dot(y, dy);
      };
      loss();
      const double* g = affine ? gain.data() : nullptr;
      norm_backward_input<double>(kind, rows, d, x.data(), g, statistics.data(), dy.data(), false, dx.data());
      norm_backward_parameters<double>(s, in_order(2), d, x.data(), statistics.data(), dy.data(), {dgain.data()},
                                       {dbias.data()});
      Doubles added(x.size(), 5.0), in_place = dy;
      norm_backward_input<double>(kind, rows, d, x.data(), g, statistics.data(), dy.data(), true, added.data());
      norm_backward_input<double>(kind, rows, d, x.data(), g, statistics.data(), in_place.data(), false,
                                  in_place.data());
      for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_DOUBLE_EQ(added[i], 5.0 + dx[i]);
      EXPECT_EQ(in_place, dx);
      expect_gradient(x, loss, dx, "x");
      if (!affine) continue;
      expect_gradient(gain, loss, dgain, "gain");
      expect_gradient(bias, loss, dbias, "bias");
    }
}

TEST(Norm, HandWorkedRows) {
  const float x[] = {3, -4, 0, 0};
  float y[4], statistics[2];
  norm_forward<float, float>(Norm::rmsnorm, 1e-12, 1, 4, x, nullptr, nullptr, y, statistics);  // mean square 25 / 4
  EXPECT_FLOAT_EQ(y[0], 1.2f);
  EXPECT_FLOAT_EQ(y[1], -1.6f);
  EXPECT_EQ(y[2], 0.0f);
  const float z[] = {1, 3}, gain[] = {10, 20}, bias[] = {0.5f, -0.5f};
  norm_forward<float, float>(Norm::layernorm, 1e-12, 1, 2, z, gain, bias, y, statistics);  // mean 2, deviation 1
  EXPECT_FLOAT_EQ(y[0], -9.5f);
  EXPECT_FLOAT_EQ(y[1], 19.5f);
}

// R46 of the reports: rank 3 is rows all the same; the gain's gradient sums over all six of them.
TEST(Norm, GainGradientSumsOverAllRowsOfARank3Input) {
  const Doubles x = normals(24, 1), dy = normals(24, 2);
  Doubles y(24), statistics(12), of_rank3(4), of_rank2(4), by_hand(4);
  norm_forward<double, double>(Norm::layernorm, 1e-5, 6, 4, x.data(), nullptr, nullptr, y.data(), statistics.data());
  norm_backward_parameters<double>({2, 3}, in_order(2), 4, x.data(), statistics.data(), dy.data(), {of_rank3.data()},
                                   {});
  norm_backward_parameters<double>({1, 6}, in_order(1), 4, x.data(), statistics.data(), dy.data(), {of_rank2.data()},
                                   {});
  for (std::size_t i = 0; i < 24; ++i) by_hand[i % 4] += dy[i] * y[i];
  for (std::size_t j = 0; j < 4; ++j) {
    EXPECT_NEAR(of_rank3[j], by_hand[j], 1e-14);
    EXPECT_NEAR(of_rank2[j], by_hand[j], 1e-14);
  }
}

TEST(Activation, GradientsAreCentralDifferences) {
  const std::int64_t rows = 3, d_ff = 23;
  for (const Activation kind : {Activation::relu, Activation::relu2, Activation::gelu, Activation::silu}) {
    const std::int64_t size = rows * d_ff, width = kind == Activation::silu ? 2 * size : size;
    Doubles up = normals(width, 2), da = normals(size, 3), a(size), dup(width);
    const auto loss = [&] {
      activation_forward<double>(kind, rows, d_ff, up.data(), a.data());
      return dot(a, da);
    };
    activation_backward<double>(kind, rows, d_ff, up.data(), da.data(), dup.data());
    expect_gradient(up, loss, dup, "up");
  }
}

TEST(Activation, HandWorkedValues) {
  const auto value = [](Activation kind, double u, double gate = 0) {
    const double both[] = {gate, u};
    double a = 0;
    activation_forward<double>(kind, 1, 1, kind == Activation::silu ? both : &u, &a);
    return a;
  };
  EXPECT_EQ(value(Activation::relu, -2), 0);
  EXPECT_EQ(value(Activation::relu, 2), 2);
  EXPECT_EQ(value(Activation::relu2, -3), 0);
  EXPECT_EQ(value(Activation::relu2, 3), 9);
  EXPECT_EQ(value(Activation::gelu, 0), 0);
  for (const double u : {-3.0, -0.5, 1.0, 2.0, 30.0, -30.0})
    EXPECT_NEAR(value(Activation::gelu, u),
                0.5 * u * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u))), 1e-14);
  EXPECT_EQ(value(Activation::silu, 3, 0), 0);
  EXPECT_NEAR(value(Activation::silu, 3, 1), 3 / (1 + std::exp(-1.0)), 1e-15);
  EXPECT_TRUE(std::isnan(value(Activation::relu, std::numeric_limits<double>::quiet_NaN())));
}

TEST(Embedding, ForwardAndBackwardByHand) {
  const std::vector<std::int64_t> lengths{2, 3};
  const std::vector<std::int32_t> tokens{1, 1, -7, 0, 1, 2};  // the third is padding
  const Sequences s{2, 3, lengths};
  const float table[] = {1, 2, 10, 20, 100, 200}, positions[] = {0.5f, 0.25f, 1.5f, 1.25f, 2.5f, 2.25f, 9, 9};
  std::vector<float> x(12, 77.0f);
  embedding_forward<float>(s, 2, tokens, 0, table, positions, x.data());
  EXPECT_EQ(x, (std::vector<float>{10.5f, 20.25f, 11.5f, 21.25f, 0, 0, 1.5f, 2.25f, 11.5f, 21.25f, 102.5f, 202.25f}));
  embedding_forward<float>({1, 1}, 2, std::vector<std::int32_t>{2}, 3, table, positions, x.data());
  EXPECT_EQ(x[0], 109.0f);
  const float dx[] = {1, 2, 3, 4, 50, 60, 5, 6, 7, 8, 9, 10};
  std::vector<float> dtable(6, 1.0f), dpositions(8, 1.0f), dtable2(6, 0.0f), dpositions2(8);
  std::vector<std::int32_t> touched, touched2;
  GradientSlots<float> g;
  for (auto& list : g.touched) list = &touched;
  g.touched[1] = &touched2;
  g.roles[0].token_embedding = dtable.data();
  g.roles[0].position_embedding = dpositions.data();
  g.roles[1].token_embedding = dtable2.data();
  g.roles[1].position_embedding = dpositions2.data();
  for (const auto& steps : {in_order(2), std::vector<SumStep>{{0, -1, true, 0}, {1, -1, true, 1}, {0, 1, false, 0}}}) {
    g.steps = steps;
    embedding_backward<float>(s, 2, 3, 4, tokens, dx, g);
    EXPECT_EQ(dtable, (std::vector<float>{5, 6, 11, 14, 9, 10}));
    EXPECT_EQ(dpositions, (std::vector<float>{6, 8, 10, 12, 9, 10, 0, 0}));
    EXPECT_EQ(dtable2, std::vector<float>(6, 0.0f));
    EXPECT_TRUE(touched.empty() && touched2.empty());
  }
}

}  // namespace
}  // namespace qkv
