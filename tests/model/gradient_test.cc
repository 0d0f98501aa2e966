// SPDX-License-Identifier: Apache-2.0
// Gradients of whole models in f64, compared with central differences, for every option; and f32 compared with f64.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "model/tiny_models.h"

namespace qkv {
namespace {

// For each parameter tensor, compares the slope of loss(), that of the current model, along a random direction of the
// tensor.
template <class F>
void expect_slopes(Model& model, const std::vector<Tensor>& gradients, std::uint64_t seed, const F& loss) {
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t p = 0; p < gradients.size(); ++p) {
    constexpr double h = 1e-6;
    Tensor& values = parameters[p];
    const Tensor kept = values;
    const Random random(seed, 1000 + p);
    double expected = 0, size = 0;
    const auto loss_at = [&](double step) {
      for (std::int64_t i = 0; i < values.size(); ++i)
        values.data<double>()[i] = kept.data<double>()[i] + step * random.normal(static_cast<std::uint64_t>(i));
      return loss();
    };
    for (std::int64_t i = 0; i < values.size(); ++i) {
      const double g = gradients[p].data<double>()[i];
      expected += g * random.normal(static_cast<std::uint64_t>(i));
      size += g * g;
    }
    const double slope = (loss_at(h) - loss_at(-h)) / (2 * h);
    values = kept;
    EXPECT_NEAR(slope, expected, 1e-7 * (1 + std::sqrt(size))) << model.infos()[p].name << " seed " << seed;
  }
}

void expect_slopes(const ModelConfig& c, const test::Tokens& tokens, std::uint64_t seed, double scale) {
  Model model(c, seed, DType::f64);
  test::disturb<double>(model, 0.3, seed);
  auto gradients = model.zeros_like_parameters();
  const Loss loss = model.loss_and_gradients(tokens, scale, gradients);
  EXPECT_EQ(loss.sum, model.loss(tokens).sum);
  expect_slopes(model, gradients, seed, [&] { return model.loss(tokens).sum * scale; });
}

TEST(ModelGradient, AndreaGpt2AndLlamaArchitectures) {
  std::uint64_t seed = 1;
  for (const auto& [name, c] : test::tiny_models()) {
    SCOPED_TRACE(name);
    test::Tokens tokens = test::random_tokens(c, 3, c.ctx_len - 1, seed);
    expect_slopes(c, tokens, seed++, 0.25);
    tokens.lengths = {c.ctx_len - 1, 0, 4};
    expect_slopes(c, tokens, seed++, 0.25);
  }
}

TEST(ModelGradient, EachOption) {
  std::uint64_t seed = 20;
  for (const auto& [name, c] : test::models_of_many_shapes()) {
    SCOPED_TRACE(name);
    test::Tokens tokens = test::random_tokens(c, 3, c.ctx_len, seed);
    tokens.lengths = {c.ctx_len, 0, (c.ctx_len + 1) / 2};
    expect_slopes(c, tokens, seed++, 0.25);
  }
}

TEST(ModelGradient, AnyCombinationOfOptions) {
  for (std::uint64_t seed = 100; seed < 160; ++seed) {
    const ModelConfig c = test::random_config(seed);
    expect_slopes(c, test::random_tokens(c, 2, c.ctx_len, seed), seed, 1.0);
  }
}

// Element by element, so that two errors along one direction cannot cancel.
TEST(ModelGradient, ElementByElement) {
  ModelConfig c = test::tiny_llama();
  c.n_layer = 1;
  c.d_model = 6;
  c.head_dim = c.v_head_dim = 2;
  c.d_ff = 5;
  c.vocab_size = 7;
  c.norm = Norm::layernorm;
  c.norm_bias = c.qkv_bias = c.output_bias = c.mlp_bias = c.embedding_norm = true;
  const test::Tokens tokens = test::random_tokens(c, 2, 5, 3);
  Model model(c, 3, DType::f64);
  test::disturb<double>(model, 0.3, 4);
  auto gradients = model.zeros_like_parameters();
  model.loss_and_gradients(tokens, 1.0, gradients);
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t p = 0; p < gradients.size(); ++p)
    for (std::int64_t i = 0; i < gradients[p].size(); ++i) {
      double& x = parameters[p].data<double>()[i];
      const double kept = x, h = 1e-5;
      x = kept + h;
      const double above = model.loss(tokens).sum;
      x = kept - h;
      const double below = model.loss(tokens).sum;
      x = kept;
      ASSERT_NEAR(gradients[p].data<double>()[i], (above - below) / (2 * h), 2e-8) << model.infos()[p].name << " " << i;
    }
}

// The dropout masks do not change when a parameter moves, so the slope is that of the loss with dropout.
TEST(ModelGradient, DropoutInF64) {
  std::uint64_t seed = 1;
  std::vector<test::NamedConfig> models = test::tiny_models();
  for (test::NamedConfig& one : test::models_of_many_options()) models.push_back(std::move(one));
  for (const auto& [name, c] : models) {
    SCOPED_TRACE(name);
    const test::Tokens tokens = test::random_tokens(c, 3, c.ctx_len - 1, seed);
    Model model(c, seed, DType::f64);
    test::disturb<double>(model, 0.3, seed);
    model.set_dropout({0.25, seed, 7});
    auto gradients = model.zeros_like_parameters(), ignored = gradients;
    const double loss = model.loss_and_gradients(tokens, 1.0, gradients).sum;
    EXPECT_NE(loss, model.loss(tokens).sum);  // disabled outside training
    expect_slopes(model, gradients, seed, [&] { return model.loss_and_gradients(tokens, 1.0, ignored).sum; });
    ++seed;
  }
}

// Compute dtype bf16: the gradient has the right direction, and the right length within a few percent.
TEST(ModelGradient, Bf16ComputeAgreesWithF32) {
  std::vector<test::NamedConfig> models = test::tiny_models();
  for (test::NamedConfig& one : test::models_of_each_option()) models.push_back(std::move(one));
  for (test::NamedConfig& one : test::models_of_many_options()) models.push_back(std::move(one));
  for (const auto& [name, c] : models) {
    SCOPED_TRACE(name);
    const test::Tokens tokens = test::random_tokens(c, 3, c.ctx_len, 9);
    Model model(c, 5);
    test::disturb<float>(model, 0.2, 6);
    auto exact = model.zeros_like_parameters(), found = exact;
    const double loss = model.loss_and_gradients(tokens, 1.0 / 32, exact).mean();
    model.set_compute_dtype(DType::bf16);
    EXPECT_NEAR(model.loss_and_gradients(tokens, 1.0 / 32, found).mean(), loss, 2e-2);
    double error = 0, size = 0;
    for (std::size_t p = 0; p < exact.size(); ++p)
      for (std::int64_t i = 0; i < exact[p].size(); ++i) {
        const double e = static_cast<double>(exact[p].data()[i]), d = static_cast<double>(found[p].data()[i]) - e;
        error += d * d;
        size += e * e;
      }
    EXPECT_LT(std::sqrt(error), 0.05 * std::sqrt(size));
    EXPECT_GT(error, 0);
  }
}

TEST(ModelGradient, F32AgreesWithF64) {
  std::vector<test::NamedConfig> models = test::models_of_many_shapes();
  for (std::uint64_t seed = 200; seed < 220; ++seed)
    models.push_back({std::to_string(seed), test::random_config(seed)});
  for (const auto& [name, c] : models) {
    const test::Tokens tokens = test::random_tokens(c, 3, c.ctx_len, 9);
    Model wide(c, 5, DType::f64), narrow(c, 5);
    test::disturb<double>(wide, 0.2, 6);
    const Model::ParameterAccess wide_values = wide.change_parameters(), narrow_values = narrow.change_parameters();
    for (std::size_t p = 0; p < wide_values->size(); ++p)
      for (std::int64_t i = 0; i < wide_values[p].size(); ++i) {
        double& x = wide_values[p].data<double>()[i];
        narrow_values[p].data()[i] = static_cast<float>(x);
        x = narrow_values[p].data()[i];
      }
    auto exact = wide.zeros_like_parameters(), found = narrow.zeros_like_parameters();
    const double scale = 1.0 / 32;
    EXPECT_NEAR(narrow.loss_and_gradients(tokens, scale, found).mean(),
                wide.loss_and_gradients(tokens, scale, exact).mean(), 1e-5);
    for (std::size_t p = 0; p < exact.size(); ++p) {
      double error = 0, size = 1e-12;
      for (std::int64_t i = 0; i < exact[p].size(); ++i) {
        const double e = exact[p].data<double>()[i];
        error += (found[p].data()[i] - e) * (found[p].data()[i] - e);
        size += e * e;
      }
      EXPECT_LT(std::sqrt(error), 1e-5 * std::sqrt(size) + 1e-7) << name << " " << wide.infos()[p].name;
    }
  }
}

}  // namespace
}  // namespace qkv
