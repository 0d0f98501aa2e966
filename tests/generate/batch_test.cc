// SPDX-License-Identifier: Apache-2.0
// Several texts at once, and contexts that stay.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <vector>

#include "qkv/generate.h"
#include "qkv/threads.h"

namespace {

using Ids = std::vector<std::int32_t>;

qkv::Model tiny_model() {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.d_model = 16;
  config.vocab_size = 37;
  config.ctx_len = 40;
  config.positions = qkv::Positions::rotary;
  return qkv::Model(config, 8);
}
qkv::GenerateOptions drawing(std::int64_t max_tokens) {
  qkv::GenerateOptions options;
  options.sampler = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = 21};
  options.max_tokens = max_tokens;
  options.end_tokens = {7, 8, 9};  // texts end at different times
  return options;
}
const std::vector<Ids> kPrompts = {{1, 2, 3}, {4}, {5, 6, 1, 2, 3, 4, 5, 6, 10, 11, 12}, {1, 2}, {30, 31, 32, 33}};

TEST(GenerateBatch, GivesEachTextAsItIsAlone) {
  qkv::Model model = tiny_model();
  const qkv::GenerateOptions options = drawing(25);
  std::vector<Ids> alone;
  for (const Ids& prompt : kPrompts) alone.push_back(qkv::generate(model, prompt, options).tokens);
  for (const int threads : {1, 3}) {
    qkv::set_num_threads(threads);
    for (const std::int64_t at_once : {1, 2, 4, 100}) {
      std::map<std::int64_t, Ids> seen, ended;
      const auto end = [&](std::int64_t text, const qkv::GenerateResult& result) { ended[text] = result.tokens; };
      const auto results = qkv::generate_batch(model, kPrompts, options, {.at_once = at_once, .on_end = end},
                                               [&](std::int64_t text, std::int32_t token) {
                                                 seen[text].push_back(token);
                                                 return true;
                                               });
      ASSERT_EQ(results.size(), kPrompts.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(results[i].tokens, alone[i]) << i << " of " << at_once;
        EXPECT_EQ(seen[static_cast<std::int64_t>(i)], alone[i]);
        EXPECT_EQ(ended.at(static_cast<std::int64_t>(i)), alone[i]);
        EXPECT_EQ(results[i].prompt_read, static_cast<std::int64_t>(kPrompts[i].size()));
      }
    }
  }
  qkv::set_num_threads(0);
}

TEST(GenerateBatch, SamplesOfAPromptAreStreamsOfTheSeed) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(12);
  for (const std::int64_t at_once : {1, 2, 16}) {
    const auto results =
        qkv::generate_batch(model, std::vector<Ids>{{1, 2, 3}, {4, 5}}, options, {.at_once = at_once, .samples = 3});
    ASSERT_EQ(results.size(), 6u);
    for (std::size_t i = 0; i < 6; ++i) {
      options.sampler.stream = i % 3;
      EXPECT_EQ(results[i].tokens, qkv::generate(model, i < 3 ? Ids{1, 2, 3} : Ids{4, 5}, options).tokens) << i;
      EXPECT_EQ(results[i].prompt_read, i % 3 > 0 ? 0 : i < 3 ? 3 : 2);  // read once
    }
    options.sampler.stream = 0;
    EXPECT_NE(results[0].tokens, results[1].tokens);
  }
}

TEST(GenerateBatch, TheCallbackEndsOneTextAlone) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(10);
  options.end_tokens = {};
  const auto results = qkv::generate_batch(model, kPrompts, options, {.at_once = 3},
                                           [](std::int64_t text, std::int32_t) { return text != 1; });
  for (std::size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].tokens.size(), i == 1 ? 1u : 10u);
    EXPECT_EQ(results[i].reason, i == 1 ? qkv::StopReason::callback : qkv::StopReason::max_tokens);
  }
}

TEST(GenerateBatch, TextsThatEndBeforeTheyBeginAndNoneAtAll) {
  qkv::Model model = tiny_model();
  EXPECT_TRUE(qkv::generate_batch(model, {}, drawing(5), {}).empty());
  for (const auto& result : qkv::generate_batch(model, kPrompts, drawing(0), {.at_once = 2, .samples = 2})) {
    EXPECT_TRUE(result.tokens.empty());
  }
  const auto full = qkv::generate_batch(model, std::vector<Ids>{Ids(40, 1), {1}}, drawing(3), {.samples = 2});
  EXPECT_EQ(full[1].reason, qkv::StopReason::context_full);
  EXPECT_NE(full[2].reason, qkv::StopReason::context_full);
}

TEST(GenerateBatch, RefusesBadArguments) {
  qkv::Model model = tiny_model();
  EXPECT_THROW(qkv::generate_batch(model, kPrompts, drawing(1), {.at_once = 0}), std::invalid_argument);
  EXPECT_THROW(qkv::generate_batch(model, kPrompts, drawing(1), {.samples = 0}), std::invalid_argument);
  EXPECT_THROW(qkv::generate_batch(model, std::vector<Ids>{{1}, {}}, drawing(1), {}), std::invalid_argument);
}

TEST(TextContext, WhatItHasReadIsNotReadAgainAndChangesNothing) {
  qkv::Model model = tiny_model();
  const qkv::GenerateOptions options = drawing(8);
  const Ids prompt = {1, 2, 3, 4, 5, 6};
  const Ids wanted = qkv::generate(model, prompt, options).tokens;
  qkv::TextContext context;
  qkv::read_text(model, Ids{1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9}, context);
  EXPECT_EQ(context.state.size(), 11);
  qkv::GenerateResult result = qkv::generate(model, prompt, options, context);
  EXPECT_EQ(result.tokens, wanted);
  EXPECT_EQ(result.prompt_read, 2);
  // All of the prompt is there: its last token is read again for its logits.
  result = qkv::generate(model, prompt, options, context);
  EXPECT_EQ(result.tokens, wanted);
  EXPECT_EQ(result.prompt_read, 1);
  // Going on with what was said.
  Ids longer = context.tokens;
  longer.insert(longer.end(), {20, 21});
  result = qkv::generate(model, longer, options, context);
  EXPECT_EQ(result.tokens, qkv::generate(model, longer, options).tokens);
  EXPECT_LE(result.prompt_read, 3);
}

TEST(TextContext, IsSharedByTheTextsOfABatch) {
  qkv::Model model = tiny_model();
  const std::vector<Ids> prompts = {{1, 2, 3, 4, 5}, {1, 2, 3}, {6, 1}};
  qkv::TextContext context;
  qkv::read_text(model, Ids{1, 2, 3, 4}, context);
  const auto results = qkv::generate_batch(model, prompts, drawing(6), {}, {}, &context);
  EXPECT_EQ(results[0].prompt_read, 1);
  EXPECT_EQ(results[1].prompt_read, 1);
  EXPECT_EQ(results[2].prompt_read, 2);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(results[i].tokens, qkv::generate(model, prompts[i], drawing(6)).tokens);
  EXPECT_EQ(context.state.size(), 4);
}

TEST(TextContext, ReadTextRefusesWhatDoesNotFit) {
  qkv::Model model = tiny_model();
  qkv::TextContext context;
  EXPECT_THROW(qkv::read_text(model, Ids{}, context), std::invalid_argument);
  EXPECT_THROW(qkv::read_text(model, Ids(41, 1), context), std::invalid_argument);
  EXPECT_THROW(qkv::read_text(model, Ids{37}, context), std::invalid_argument);
}

}  // namespace
