// SPDX-License-Identifier: Apache-2.0
// Ten AdamW steps, loss by loss, compared with PyTorch's. scripts/make_golden.py makes the files.
#include <gtest/gtest.h>

#include "model/golden.h"
#include "qkv/train.h"

namespace qkv {
namespace {

template <class T>
void expect_same_losses(const std::string& name, const ModelConfig& c, double tolerance) {
  SCOPED_TRACE(name);
  Model model(c, 0, dtype_of<T>);
  test::set_parameters<T>(model, name);
  const test::Tokens tokens = test::golden_tokens(name);
  const Tensor losses = test::golden(name, "losses");  // [11]
  TrainConfig config;
  config.weight_decay = 0.1;
  config.beta1 = 0.9;
  config.beta2 = 0.95;
  config.eps = 1e-8;
  const auto optimizer = make_optimizer("adamw", model);
  ASSERT_EQ(losses.size(), 11);
  for (std::int64_t step = 0; step <= 10; ++step) {
    auto gradients = model.zeros_like_parameters();
    const auto count = static_cast<double>(model.loss(tokens).count);
    const Loss loss = model.loss_and_gradients(tokens, 1 / count, gradients);
    const double expected = losses.data<double>()[step];
    EXPECT_NEAR(loss.mean(), expected, tolerance * (1 + expected)) << "after " << step << " steps";
    optimizer->update(*model.change_parameters(), gradients, config, {step + 1, 0.01, 1.0});
  }
}

TEST(GoldenTraining, TenStepsInF64) {
  for (const auto& [name, c] : test::tiny_models()) expect_same_losses<double>(name, c, 1e-10);
}

TEST(GoldenTraining, TenStepsInF32) {
  for (const auto& [name, c] : test::tiny_models()) expect_same_losses<float>(name, c, 2e-5);
}

}  // namespace
}  // namespace qkv
