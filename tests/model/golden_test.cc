// SPDX-License-Identifier: Apache-2.0
// Agreement with PyTorch: logits, loss and every gradient of three architectures. scripts/make_golden.py makes the
// files.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "model/golden.h"

namespace qkv {
namespace {

using namespace test;

template <class T>
void expect_agreement(const std::string& name, const ModelConfig& c, double tolerance) {
  SCOPED_TRACE(name);
  Model model(c, 0, dtype_of<T>);
  set_parameters<T>(model, name);
  const test::Tokens tokens = golden_tokens(name);
  const Tensor logits = model.logits(tokens), expected = golden(name, "logits");
  ASSERT_EQ(logits.shape(), expected.shape());
  for (std::int64_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits.data<T>()[i], expected.data()[i], tolerance * (1 + std::abs(expected.data()[i]))) << i;

  const std::int64_t count = model.loss(tokens).count;
  EXPECT_EQ(count, 36 - 8);
  auto gradients = model.zeros_like_parameters();
  const Loss loss = model.loss_and_gradients(tokens, 1.0 / static_cast<double>(count), gradients);
  EXPECT_NEAR(loss.mean(), golden(name, "losses").data<double>()[0], tolerance);
  const Tensor flat = golden(name, "gradients");
  std::int64_t at = 0;
  for (std::size_t p = 0; p < gradients.size(); ++p)
    for (std::int64_t i = 0; i < gradients[p].size(); ++i, ++at)
      ASSERT_NEAR(gradients[p].data<T>()[i], flat.data()[at], tolerance * (0.1 + std::abs(flat.data()[at])))
          << model.infos()[p].name << " " << i;
}

TEST(Golden, AgreesWithPyTorchInF64) {
  for (const auto& [name, c] : test::tiny_models()) expect_agreement<double>(name, c, 1e-7);
}

TEST(Golden, AgreesWithPyTorchInF32) {
  for (const auto& [name, c] : test::tiny_models()) expect_agreement<float>(name, c, 1e-5);
}

}  // namespace
}  // namespace qkv
