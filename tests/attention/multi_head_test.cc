// SPDX-License-Identifier: Apache-2.0
#include "qkv/multi_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Tensor*> all_of(MultiHeadParameters& p) {
  return {&p.w_q, &p.w_k, &p.w_v, &p.w_o, &p.b_q, &p.b_k, &p.b_v, &p.b_o};
}

MultiHeadParameters random_parameters(const MultiHeadConfig& config, DType dtype, double deviation) {
  MultiHeadParameters p = make_multi_head(config, dtype);
  std::uint64_t seed = 100;
  for (Tensor* t : all_of(p))
    if (t->raw()) *t = random(t->shape(), seed++, dtype, deviation);
  return p;
}

// x . w + bias in f64, x [rows, in], w [in, out].
std::vector<double> times(const std::vector<double>& x, const Tensor& w, const Tensor& bias) {
  const auto in = static_cast<std::size_t>(w.shape()[0]), out = static_cast<std::size_t>(w.shape()[1]);
  const std::vector<double> weights = values(w), b = values(bias);
  std::vector<double> y(x.size() / in * out);
  for (std::size_t e = 0; e < y.size(); ++e) {
    y[e] = b.empty() ? 0 : b[e % out];
    for (std::size_t c = 0; c < in; ++c) y[e] += x[e / out * in + c] * weights[c * out + e % out];
  }
  return y;
}

TEST(MultiHead, EqualsProjectionsAttentionAndProjection) {
  const MultiHeadConfig config{
      .d_model = 10, .n_head = 4, .n_kv_head = 2, .head_dim = 3, .v_head_dim = 5, .bias = true};
  const MultiHeadParameters p = random_parameters(config, DType::f64, 0.5);
  const Tensor x = random({2, 6, 10}, 1, DType::f64);
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  const std::vector<double> in = values(x);
  Tensor q = make({2, 6, 4, 3}, times(in, p.w_q, p.b_q), DType::f64),
         k = make({2, 6, 2, 3}, times(in, p.w_k, p.b_k), DType::f64);
  Tensor v = make({2, 6, 2, 5}, times(in, p.w_v, p.b_v), DType::f64), read({2, 6, 4, 5}, DType::f64);
  attention(swap_axes(q.view(), 1, 2), swap_axes(k.view(), 1, 2), swap_axes(v.view(), 1, 2), options,
            {swap_axes(read.view(), 1, 2), {}, {}});
  const std::vector<double> want = times(values(read), p.w_o, p.b_o);
  const Tensor out = multi_head(config, p, x, options);
  EXPECT_EQ(to_string(out.shape()), "[2, 6, 10]");
  EXPECT_THAT(values(out), ::testing::Pointwise(::testing::DoubleNear(1e-12), want));
}

TEST(MultiHead, ShapesOfTheWorkedExample) {
  // [4, 16, 512], 4 heads of 128 -> [4, 16, 512]
  const MultiHeadConfig config{.d_model = 512, .n_head = 4};
  const MultiHeadParameters p = random_parameters(config, DType::f32, 0.03);
  EXPECT_EQ(to_string(p.w_q.shape()), "[512, 512]");
  MultiHeadActivations a;
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  const Tensor out = multi_head(config, p, random({4, 16, 512}, 1), options, &a);
  EXPECT_EQ(to_string(out.shape()), "[4, 16, 512]");
  EXPECT_EQ(to_string(a.q.shape()), "[4, 16, 512]");
  EXPECT_EQ(to_string(a.lse.shape()), "[4, 4, 16]");
}

TEST(MultiHead, Andrea120M) {
  const MultiHeadConfig c = MultiHeadConfig{.d_model = 768, .n_head = 12}.resolved();
  EXPECT_EQ(c.head_dim, 64);
  EXPECT_EQ(c.v_head_dim, 64);
  EXPECT_EQ(c.n_kv_head, 12);
}

TEST(MultiHead, GradientsAgainstCentralDifferences) {
  for (bool bias : {false, true}) {
    const MultiHeadConfig config{
        .d_model = 6, .n_head = 4, .n_kv_head = 2, .head_dim = 3, .v_head_dim = 2, .bias = bias};
    MultiHeadParameters p = random_parameters(config, DType::f64, 0.6);
    Tensor x = random({2, 4, 6}, 1, DType::f64), sinks = random({4}, 3, DType::f64), dsinks({4}, DType::f64);
    const Tensor dout = random({2, 4, 6}, 2, DType::f64);
    AttentionOptions options;
    options.causal = true;
    options.alignment = Alignment::top_left;
    options.sinks = sinks;
    MultiHeadActivations a;
    multi_head(config, p, x, options, &a);
    MultiHeadGradients g = multi_head_backward(config, p, x, a, dout, options, {{}, {}, {}, {}, dsinks});
    const auto loss = [&] {
      const std::vector<double> out = values(multi_head(config, p, x, options)), d = values(dout);
      double sum = 0;
      for (std::size_t e = 0; e < out.size(); ++e) sum += out[e] * d[e];
      return sum;
    };
    const auto check = [&](Tensor& input, const Tensor& gradient) {
      ASSERT_EQ(input.size(), gradient.size());
      for (std::int64_t e = 0; e < input.size(); ++e) {
        double& value = input.data<double>()[e];
        const double before = value;
        value = before + 1e-5;
        const double above = loss();
        value = before - 1e-5;
        const double below = loss();
        value = before;
        ASSERT_NEAR(gradient.data<double>()[e], (above - below) / 2e-5, 1e-8);
      }
    };
    check(x, g.dx);
    check(sinks, dsinks);
    const std::vector<Tensor*> inputs = all_of(p), gradients = all_of(g.parameters);
    for (std::size_t n = 0; n < inputs.size(); ++n) check(*inputs[n], *gradients[n]);
  }
}

TEST(MultiHead, F32AgreesWithF64) {
  const MultiHeadConfig config{
      .d_model = 48, .n_head = 6, .n_kv_head = 3, .head_dim = 10, .v_head_dim = 7, .bias = true};
  MultiHeadParameters wide = random_parameters(config, DType::f64, 0.2), narrow = make_multi_head(config);
  const std::vector<Tensor*> from = all_of(wide), to = all_of(narrow);
  for (std::size_t n = 0; n < from.size(); ++n) *to[n] = converted(*from[n], DType::f32);
  const Tensor x = random({2, 70, 48}, 1, DType::f64), dout = random({2, 70, 48}, 2, DType::f64);
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  MultiHeadActivations wide_a, narrow_a;
  const Tensor x32 = converted(x, DType::f32), dout32 = converted(dout, DType::f32);
  const Tensor want = multi_head(config, wide, x, options, &wide_a),
               got = multi_head(config, narrow, x32, options, &narrow_a);
  EXPECT_THAT(values(got), ::testing::Pointwise(::testing::DoubleNear(2e-5), values(want)));
  const MultiHeadGradients g = multi_head_backward(config, wide, x, wide_a, dout, options);
  const MultiHeadGradients h = multi_head_backward(config, narrow, x32, narrow_a, dout32, options);
  EXPECT_THAT(values(h.dx), ::testing::Pointwise(::testing::DoubleNear(2e-4), values(g.dx)));
  EXPECT_THAT(values(h.parameters.w_q), ::testing::Pointwise(::testing::DoubleNear(1e-3), values(g.parameters.w_q)));
  EXPECT_THAT(values(h.parameters.w_o), ::testing::Pointwise(::testing::DoubleNear(1e-3), values(g.parameters.w_o)));
}

TEST(MultiHead, AcceptsAnyLayoutOfX) {
  const MultiHeadConfig config{.d_model = 6, .n_head = 2};
  const MultiHeadParameters p = random_parameters(config, DType::f32, 0.5);
  Tensor x = random({5, 3, 6}, 1);  // [ctx, batch, d_model]
  const View turned = swap_axes(x.view(), 0, 1);
  EXPECT_TRUE(same_bits(multi_head(config, p, turned), multi_head(config, p, converted(turned, DType::f32))));
}

TEST(MultiHead, EmptyBatch) {
  const MultiHeadConfig config{.d_model = 6, .n_head = 2, .bias = true};
  const MultiHeadParameters p = random_parameters(config, DType::f32, 0.5);
  MultiHeadActivations a;
  const Tensor x({0, 3, 6});
  EXPECT_EQ(multi_head(config, p, x, {}, &a).size(), 0);
  EXPECT_THAT(values(multi_head_backward(config, p, x, a, x).parameters.b_o), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST(MultiHead, Misuse) {
  const auto error_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of([] { MultiHeadConfig{.d_model = 10, .n_head = 3}.resolved(); }),
            "[multi_head] d_model must be a multiple of n_head unless head_dim is given; found 10 and 3");
  EXPECT_EQ(error_of([] { MultiHeadConfig{.d_model = 12, .n_head = 6, .n_kv_head = 4}.resolved(); }),
            "[multi_head] n_head must be a multiple of n_kv_head; found 6 and 4");
  EXPECT_EQ(error_of([] { MultiHeadConfig{.d_model = 12, .n_head = 0}.resolved(); }),
            "[multi_head] n_head must be at least 1; found 0");
  const MultiHeadConfig config{.d_model = 6, .n_head = 2};
  MultiHeadParameters p = make_multi_head(config);
  EXPECT_THAT(error_of([&] {
                multi_head(config, p, Tensor({1, 2, 5}));
              }),
              HasSubstr("x must be [batch, ctx, 6]; found shape [1, 2, 5]"));
  EXPECT_THAT(error_of([&] {
                multi_head(config, p, Tensor({1, 2, 6}, DType::f64));
              }),
              HasSubstr("w_q must be f64 [6, 6]; found f32 [6, 6]"));
  p.w_v = Tensor({6, 4});
  EXPECT_THAT(error_of([&] {
                multi_head(config, p, Tensor({1, 2, 6}));
              }),
              HasSubstr("w_v must be f32 [6, 6]; found f32 [6, 4]"));
  EXPECT_THAT(error_of([&] {
                multi_head_backward(config, make_multi_head(config), Tensor({1, 2, 6}), {}, Tensor({1, 2, 6}));
              }),
              HasSubstr("activations.q must be f32 [1, 2, 6]; found an empty tensor"));
}

}  // namespace
}  // namespace qkv::test
