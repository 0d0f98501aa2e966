// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "qkv/threads.h"
#include "qkv/train.h"
#include "train/small_run.h"

namespace qkv {
namespace {

// All elements 1, each with a gradient of `value`.
void fill(std::vector<Tensor>& tensors, double value) {
  for (Tensor& tensor : tensors) {
    for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data<double>()[i] = value;
  }
}

TEST(AdamW, MatchesHandWorkedNumbers) {
  ModelConfig shape = small_model();
  shape.norm_gain = true;  // so that some parameters do not decay
  Model model(shape, 1, DType::f64);
  fill(*model.change_parameters(), 1);
  std::vector<Tensor> gradients = model.zeros_like_parameters();
  TrainConfig config;
  config.weight_decay = 0.1;
  config.beta1 = 0.9;
  config.beta2 = 0.99;
  config.eps = 1e-8;
  const auto optimizer = make_optimizer("adamw", model);
  // Gradients 0.5, then -1 (given doubled, with a scale of one half), learning rate 0.1:
  // m = 0.05, v = 0.0025; bias-corrected they are g and g^2: p = 0.99 - 0.1 * 0.5 / (0.5 + 1e-8)
  //   m = -0.055, v = 0.012475; m / 0.19 = -0.28947, sqrt(v / 0.0199) = 0.79176: p = 0.99 p + 0.1 * 0.36561
  fill(gradients, 0.5);
  optimizer->update(*model.change_parameters(), gradients, config, {1, 0.1, 1.0});
  const double decayed1 = 0.890000002, decayed2 = 0.9176607728517225, plain1 = 0.900000002, plain2 = 0.9365607728717226;
  bool seen[2] = {};
  const auto expect_all = [&](double decayed, double plain) {
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
      const bool decays = model.infos()[p].decays();
      seen[decays] = true;
      for (std::int64_t i = 0; i < model.parameters()[p].size(); ++i) {
        ASSERT_NEAR(model.parameters()[p].data<double>()[i], decays ? decayed : plain, 1e-14) << model.infos()[p].name;
      }
    }
  };
  expect_all(decayed1, plain1);
  fill(gradients, -2);
  optimizer->update(*model.change_parameters(), gradients, config, {2, 0.1, 0.5});
  expect_all(decayed2, plain2);
  EXPECT_TRUE(seen[0] && seen[1]);
  const std::vector<OptimizerTensor>& state = optimizer->state();
  ASSERT_EQ(state.size(), 2 * model.infos().size());
  EXPECT_EQ(state[0].name, "adamw.m.token_embedding");
  EXPECT_EQ(state[model.infos().size()].name, "adamw.v.token_embedding");
  EXPECT_NEAR(state[0].tensor.data<double>()[0], -0.055, 1e-15);
  EXPECT_NEAR(state[model.infos().size()].tensor.data<double>()[0], 0.012475, 1e-15);
}

TEST(AdamW, AWeightWithoutGradientOnlyDecays) {
  Model model(small_model(), 1, DType::f64);
  fill(*model.change_parameters(), 2);
  const std::vector<Tensor> gradients = model.zeros_like_parameters();
  TrainConfig config;
  config.weight_decay = 0.5;
  make_optimizer("adamw", model)->update(*model.change_parameters(), gradients, config, {1, 0.1, 1.0});
  EXPECT_DOUBLE_EQ(model.parameters()[0].data<double>()[0], 1.9);
}

TEST(AdamW, GivesTheSameBitsAtAnyThreadCount) {
  ModelConfig shape = small_model();
  shape.vocab_size = 9001;  // the embedding takes more than one task
  std::vector<std::vector<float>> results;
  std::vector<double> norms;
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    Model model(shape, 3);
    const Model other(shape, 4);
    const auto optimizer = make_optimizer("adamw", model);
    for (std::int64_t step = 1; step <= 3; ++step) {
      optimizer->update(*model.change_parameters(), other.parameters(), {}, {step, 1e-2, 0.7});
    }
    results.push_back(values(model.parameters()));
    norms.push_back(global_norm(model.parameters()));
  }
  set_num_threads(0);
  for (std::size_t i = 1; i < results.size(); ++i) {
    EXPECT_EQ(results[i], results[0]);
    EXPECT_EQ(norms[i], norms[0]);
  }
}

TEST(AdamW, RefusesGradientsOfAnotherModel) {
  Model model(small_model());
  const auto optimizer = make_optimizer("adamw", model);
  EXPECT_THROW(optimizer->update(*model.change_parameters(), {}, {}, {1, 0.1, 1.0}), std::invalid_argument);
}

TEST(GlobalNorm, AddsUpAllTensors) {
  std::vector<Tensor> tensors;
  for (const std::int64_t size : {1, 17, 70001}) {
    tensors.emplace_back(Dims{size});
    for (std::int64_t i = 0; i < size; ++i) tensors.back().data()[i] = -2.0f;
  }
  tensors.emplace_back(Dims{0});
  EXPECT_DOUBLE_EQ(global_norm(tensors), 2 * std::sqrt(70019.0));
  tensors[1].data()[16] = std::nanf("");
  EXPECT_TRUE(std::isnan(global_norm(tensors)));
}

}  // namespace
}  // namespace qkv
