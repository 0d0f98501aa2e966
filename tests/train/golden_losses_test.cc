// SPDX-License-Identifier: Apache-2.0
// Ten AdamW steps give PyTorch's losses, for three architectures. scripts/make_golden.py makes the files: learning rate
// 0.01, betas 0.9 and 0.95, eps 1e-8, weight decay 0.1 on matrices only, no clipping.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "qkv/train.h"

namespace qkv {
namespace {

template <class T>
void expect_losses(const std::string& name, const ModelConfig& shape, double tolerance) {
  SCOPED_TRACE(name);
  Model model(shape, 0, dtype_of<T>);
  test::set_parameters<T>(model, name);
  const test::Tokens tokens = test::golden_tokens(name);
  const Tensor losses = test::golden(name, "losses");  // [11]
  ASSERT_EQ(losses.size(), 11);
  TrainConfig config;
  config.beta2 = 0.95;
  const auto optimizer = make_optimizer("adamw", model);
  const double scale = 1.0 / static_cast<double>(model.loss(tokens).count);
  for (std::int64_t step = 1; step <= 10; ++step) {
    std::vector<Tensor> gradients = model.zeros_like_parameters();
    const Loss loss = model.loss_and_gradients(tokens, scale, gradients);
    EXPECT_NEAR(loss.mean(), losses.data<double>()[step - 1], tolerance) << "before step " << step;
    optimizer->update(*model.change_parameters(), gradients, config, {step, 0.01, 1.0});
  }
  EXPECT_NEAR(model.loss(tokens).mean(), losses.data<double>()[10], tolerance);
  EXPECT_LT(losses.data<double>()[10], losses.data<double>()[0]);
}

TEST(GoldenLosses, TenStepsInF64) {
  for (const auto& [name, shape] : test::tiny_models()) expect_losses<double>(name, shape, 1e-8);
}

TEST(GoldenLosses, TenStepsInF32) {
  for (const auto& [name, shape] : test::tiny_models()) expect_losses<float>(name, shape, 2e-5);
}

}  // namespace
}  // namespace qkv
