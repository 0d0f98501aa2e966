// SPDX-License-Identifier: Apache-2.0
// Generation past the end of the context.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "qkv/generate.h"

namespace {

using Ids = std::vector<std::int32_t>;

qkv::Model tiny_model(qkv::Positions positions, std::int64_t ctx_len) {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.d_model = 16;
  config.vocab_size = 13;
  config.ctx_len = ctx_len;
  config.positions = positions;
  qkv::Model model(config, 5);
  // Larger weights, so that a token's position affects the next token.
  for (qkv::Tensor& tensor : *model.change_parameters())
    for (std::int64_t i = 0; i < tensor.size(); ++i) tensor.data()[i] *= 20;
  return model;
}

qkv::GenerateOptions shifting(std::int64_t max_tokens, std::int64_t keep, std::uint64_t seed) {
  qkv::GenerateOptions options;
  options.sampler = {.temperature = 1.5, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1.1, .seed = seed};
  options.max_tokens = max_tokens;
  options.shift = true;
  options.keep = keep;
  return options;
}

// The samples of a plain model that evaluates the kept tokens from scratch for each token.
Ids plain(qkv::Model& model, const Ids& prompt, const qkv::GenerateOptions& options) {
  const auto ctx_len = static_cast<std::size_t>(model.config().ctx_len);
  const std::size_t keep = options.keep < 0 ? prompt.size() : static_cast<std::size_t>(options.keep);
  qkv::Sampler sampler(options.sampler);
  Ids text = prompt, history = prompt, result;
  std::vector<float> logits(13);
  while (static_cast<std::int64_t>(result.size()) < options.max_tokens) {
    if (text.size() > ctx_len) {
      Ids left(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(keep));
      left.insert(left.end(), text.end() - static_cast<std::ptrdiff_t>((ctx_len - keep) / 2), text.end());
      text = left;
    }
    qkv::ModelState state = model.make_state();
    model.decode(text, state, logits);
    result.push_back(sampler.sample(logits, history));
    text.push_back(result.back());
    history.push_back(result.back());
  }
  return result;
}

class Shift : public testing::TestWithParam<qkv::Positions> {};

TEST_P(Shift, MatchesAPlainModelThatEvaluatesTheKeptTokens) {
  for (const std::int64_t ctx_len : {2, 7, 16}) {
    for (const std::int64_t keep : {0, 1, 4}) {
      if (keep > ctx_len - 2) continue;
      qkv::Model model = tiny_model(GetParam(), ctx_len);
      const qkv::GenerateOptions options = shifting(50, keep, 3);
      const qkv::GenerateResult result = qkv::generate(model, Ids{1, 2}, options);
      EXPECT_EQ(result.tokens, plain(model, {1, 2}, options)) << ctx_len << " " << keep;
      EXPECT_EQ(result.reason, qkv::StopReason::max_tokens);
      EXPECT_GT(result.shifts, 2);
    }
  }
}

TEST_P(Shift, KeepsTheWholePromptWhenAsked) {
  qkv::Model model = tiny_model(GetParam(), 12);
  const Ids prompt = {3, 1, 4, 1, 5, 9};
  const qkv::GenerateOptions options = shifting(40, -1, 4);
  const qkv::GenerateResult result = qkv::generate(model, prompt, options);
  EXPECT_EQ(result.tokens, plain(model, prompt, options));
  EXPECT_TRUE(std::equal(prompt.begin(), prompt.end(), result.context.begin()));
  EXPECT_LE(result.context.size(), 13u);
}

TEST_P(Shift, APromptLongerThanTheContextIsShiftedToo) {
  qkv::Model model = tiny_model(GetParam(), 8);
  Ids prompt;
  for (std::int32_t i = 0; i < 30; ++i) prompt.push_back(i * 5 % 13);
  const qkv::GenerateOptions options = shifting(20, 2, 9);
  const qkv::GenerateResult result = qkv::generate(model, prompt, options);
  EXPECT_EQ(result.tokens, plain(model, prompt, options));
  EXPECT_EQ(result.prompt_evaluated, 2 + (8 - 2) / 2);
}

TEST_P(Shift, WithoutShiftGenerationEndsAtTheContext) {
  qkv::Model model = tiny_model(GetParam(), 8);
  qkv::GenerateOptions options = shifting(20, 2, 9);
  options.shift = false;
  EXPECT_EQ(qkv::generate(model, Ids{1, 2}, options).reason, qkv::StopReason::context_full);
}

TEST_P(Shift, RefusesToKeepTooManyTokens) {
  qkv::Model model = tiny_model(GetParam(), 8);
  EXPECT_NO_THROW(qkv::generate(model, Ids{1, 2}, shifting(20, 6, 1)));
  for (const std::int64_t keep : {7, 8, 1000, -2}) {
    EXPECT_THROW(qkv::generate(model, Ids{1, 2}, shifting(20, keep, 1)), std::invalid_argument) << keep;
  }
  EXPECT_THROW(qkv::generate(model, Ids(7, 1), shifting(20, -1, 1)), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Positions, Shift, testing::Values(qkv::Positions::learned, qkv::Positions::rotary));

}  // namespace
