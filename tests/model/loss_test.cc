// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/model.h"

namespace qkv {
namespace {

// R41 of the reports: A has one target of loss 4, B three of loss 1 each; the mean over targets is 7 / 4.
TEST(Loss, MeanIsOverTargetsNotOverBatches) {
  const Loss a{4, 1}, b{3, 3}, none{};
  EXPECT_EQ((Loss{a.sum + b.sum, a.count + b.count}.mean()), 1.75);
  EXPECT_EQ(none.mean(), 0.0);
}

// The same on a model: micro-batches with 1 and 3 targets accumulate to the gradient of all 4 together.
TEST(Loss, AccumulatedMicroBatchesWeighEveryTargetEqually) {
  const ModelConfig c = test::tiny_andrea();
  Model model(c, 3, DType::f64);
  test::Tokens all = test::random_tokens(c, 2, 3, 8);
  all.targets = {4, -1, -1, 1, 2, 3};
  auto together = model.zeros_like_parameters(), accumulated = model.zeros_like_parameters();
  const Loss loss = model.loss_and_gradients(all, 1.0 / 4, together);
  EXPECT_EQ(loss.count, 4);
  for (std::int64_t b : {0, 1}) {
    const test::Tokens one = all.sequence(b);
    EXPECT_EQ(model.loss_and_gradients(one, 1.0 / 4, accumulated).count, b == 0 ? 1 : 3);
  }
  for (std::size_t p = 0; p < together.size(); ++p)
    for (std::int64_t i = 0; i < together[p].size(); ++i)
      ASSERT_EQ(together[p].data<double>()[i], accumulated[p].data<double>()[i]) << model.infos()[p].name;
}

TEST(Loss, NoRealTargetGivesZeroNotNan) {
  for (const auto& [name, c] : test::tiny_models()) {
    Model model(c, 3);
    test::Tokens tokens = test::random_tokens(c, 2, 5, 8);
    std::fill(tokens.targets.begin(), tokens.targets.end(), -1);
    auto gradients = model.zeros_like_parameters();
    const Loss loss = model.loss_and_gradients(tokens, 1.0, gradients);
    EXPECT_EQ(loss.count, 0);
    EXPECT_EQ(loss.sum, 0.0);
    EXPECT_EQ(loss.mean(), 0.0);
    for (const Tensor& g : gradients)
      for (std::int64_t i = 0; i < g.size(); ++i) ASSERT_EQ(g.data()[i], 0.0f) << name;
  }
}

TEST(Loss, EmptyBatches) {
  Model model(test::tiny_gpt2(), 3);
  auto gradients = model.zeros_like_parameters();
  EXPECT_EQ(model.loss_and_gradients(Batch{}, 1.0, gradients).count, 0);
  Batch no_tokens;
  no_tokens.batch = 3;
  EXPECT_EQ(model.loss(no_tokens).count, 0);
  EXPECT_EQ(model.logits(no_tokens).shape(), (Dims{3, 0, 19}));
}

TEST(Loss, StartsAtTheLogarithmOfTheVocabulary) {
  std::vector<ModelConfig> configs{test::tiny_andrea(), test::tiny_gpt2(), test::tiny_llama()};
  ModelConfig wide = preset("andrea-12m");  // wide for a vocabulary of bytes
  wide.n_layer = 2;
  wide.d_model = 768;
  wide.d_ff = 1024;
  wide.vocab_size = 257;
  configs.push_back(wide.resolved());
  ModelConfig gpt2 = preset("gpt2");
  gpt2.n_layer = 2;
  gpt2.vocab_size = 3000;
  configs.push_back(gpt2);
  for (const ModelConfig& c : configs) {
    Model model(c, 1);
    const test::Tokens tokens = test::random_tokens(c, 8, std::min<std::int64_t>(c.ctx_len, 64), 2);
    const double expected = std::log(static_cast<double>(c.vocab_size));
    EXPECT_NEAR(model.loss(tokens).mean(), expected, 0.02 * expected) << c.d_model << " " << c.vocab_size;
  }
}

}  // namespace
}  // namespace qkv
