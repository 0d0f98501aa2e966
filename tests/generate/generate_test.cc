// SPDX-License-Identifier: Apache-2.0
#include "qkv/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <stdexcept>
#include <vector>

#include "qkv/threads.h"

namespace {

using Ids = std::vector<std::int32_t>;

qkv::Model tiny_model(std::int64_t ctx_len = 8) {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 2;
  config.d_model = 16;
  config.vocab_size = 11;
  config.ctx_len = ctx_len;
  return qkv::Model(config, 3);
}
qkv::GenerateOptions greedy(std::int64_t max_tokens) {
  qkv::GenerateOptions options;
  options.sampler.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

// Reported bug R37: prompt and new tokens exceed the context.
TEST(Generate, StopsWhenTheContextIsFull) {
  qkv::Model model = tiny_model(8);
  Ids seen;
  const qkv::GenerateResult result = qkv::generate(model, Ids{1, 2, 3, 4, 5}, greedy(10), [&](std::int32_t id) {
    seen.push_back(id);
    return true;
  });
  EXPECT_EQ(result.tokens.size(), 3u);
  EXPECT_EQ(result.reason, qkv::StopReason::context_full);
  EXPECT_EQ(seen, result.tokens);
  EXPECT_THROW(qkv::generate(model, Ids(9, 1), greedy(10)), std::invalid_argument);

  // S4 of the reports: a prompt that fills the context still gets one next token, that of a full pass.
  const Ids prompt{1, 2, 3, 4, 5, 1, 2, 3};
  const qkv::GenerateResult full = qkv::generate(model, prompt, greedy(10));
  const qkv::Tensor logits = model.logits({1, 8, prompt, {}, {}});  // [1, 8, vocab_size]
  const std::int64_t vocab = model.config().vocab_size;
  const float* last = logits.data() + 7 * vocab;
  EXPECT_EQ(full.tokens, Ids{static_cast<std::int32_t>(std::max_element(last, last + vocab) - last)});
  EXPECT_EQ(full.reason, qkv::StopReason::context_full);
  EXPECT_EQ(qkv::generate(model, prompt, greedy(1)).reason, qkv::StopReason::max_tokens);
}

TEST(Generate, GeneratesTheRequestedNumberOfTokens) {
  qkv::Model model = tiny_model();
  for (const std::int64_t count : {0, 1, 2, 3}) {
    const qkv::GenerateResult result = qkv::generate(model, Ids{1, 2, 3, 4, 5}, greedy(count));
    EXPECT_EQ(static_cast<std::int64_t>(result.tokens.size()), count);
    EXPECT_EQ(result.reason, qkv::StopReason::max_tokens);
  }
}

// Greedy decoding step by step over the cache = the highest logit of a full pass each time.
TEST(Generate, GreedyTokensMatchFullPasses) {
  qkv::Model model = tiny_model(24);
  Ids all = {4, 9};
  const qkv::GenerateResult result = qkv::generate(model, all, greedy(22));
  ASSERT_EQ(result.tokens.size(), 22u);
  for (const std::int32_t token : result.tokens) {
    qkv::Batch batch;
    batch.batch = 1;
    batch.ctx = static_cast<std::int64_t>(all.size());
    batch.tokens = all;
    const qkv::Tensor logits = model.logits(batch);  // [1, ctx, 11]
    const float* last = logits.data() + (batch.ctx - 1) * 11;
    std::int32_t best = 0;
    for (std::int32_t i = 1; i < 11; ++i) best = last[i] > last[best] ? i : best;
    EXPECT_EQ(token, best) << "after " << all.size() << " tokens";
    all.push_back(token);
  }
}

TEST(Generate, StopsAtTheEndTokenWithoutShowingIt) {
  qkv::Model model = tiny_model(24);
  const Ids prompt = {4, 9};
  const Ids tokens = qkv::generate(model, prompt, greedy(22)).tokens;
  qkv::GenerateOptions options = greedy(22);
  options.end_tokens = {10 - tokens[0], tokens[0]};
  const qkv::GenerateResult result = qkv::generate(model, prompt, options);
  EXPECT_EQ(result.reason, qkv::StopReason::end_token);
  EXPECT_TRUE(result.tokens.empty());
}

TEST(Generate, StopsWhenTheCallbackSaysSo) {
  qkv::Model model = tiny_model(24);
  int calls = 0;
  const qkv::GenerateResult result =
      qkv::generate(model, Ids{1}, greedy(20), [&](std::int32_t) { return ++calls < 4; });
  EXPECT_EQ(calls, 4);
  EXPECT_EQ(result.tokens.size(), 4u);
  EXPECT_EQ(result.reason, qkv::StopReason::callback);
}

TEST(Generate, TheSameSeedGivesTheSameTokensWithAnyNumberOfThreads) {
  qkv::Model model = tiny_model(24);
  qkv::GenerateOptions options;
  options.max_tokens = 20;
  options.sampler.top_k = 0;
  options.sampler.seed = 5;
  qkv::set_num_threads(1);
  const Ids one = qkv::generate(model, Ids{1, 2}, options).tokens;
  qkv::set_num_threads(3);
  EXPECT_EQ(qkv::generate(model, Ids{1, 2}, options).tokens, one);
  qkv::set_num_threads(0);
  options.sampler.seed = 6;
  EXPECT_NE(qkv::generate(model, Ids{1, 2}, options).tokens, one);
}

TEST(Generate, NeverSamplesPastTheVocabularyLimit) {
  qkv::Model model = tiny_model(24);
  qkv::GenerateOptions options;
  options.max_tokens = 23;
  options.sampler = {.temperature = 100, .top_k = 0, .top_p = 1, .min_p = 0};
  options.vocab_limit = 3;
  for (const std::int32_t id : qkv::generate(model, Ids{10}, options).tokens) EXPECT_LT(id, 3);
}

TEST(Generate, RefusesBadArguments) {
  qkv::Model model = tiny_model();
  EXPECT_THROW(qkv::generate(model, Ids{}, greedy(1)), std::invalid_argument);
  EXPECT_THROW(qkv::generate(model, Ids{11}, greedy(1)), std::invalid_argument);
  EXPECT_THROW(qkv::generate(model, Ids{-1}, greedy(1)), std::invalid_argument);
  EXPECT_THROW(qkv::generate(model, Ids{1}, greedy(-1)), std::invalid_argument);
  qkv::GenerateOptions options = greedy(1);
  options.vocab_limit = 12;
  EXPECT_THROW(qkv::generate(model, Ids{1}, options), std::invalid_argument);
  options = greedy(1);
  options.sampler.top_p = 2;
  EXPECT_THROW(qkv::generate(model, Ids{1}, options), std::invalid_argument);
}

}  // namespace
