// SPDX-License-Identifier: Apache-2.0
#include "qkv/evaluate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numbers>

#include "qkv/threads.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

const std::string kText = "the cat sat on the mat; the mat sat on the cat, and then some more of all that was said.";

std::vector<std::int32_t> tokens_of(std::size_t count) {
  std::vector<std::int32_t> tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(static_cast<unsigned char>(kText[i * 7 % kText.size()]));
  return tokens;
}

// By the definition: the token at `at`, predicted from the preceding tokens of its window, which begins at `start`.
double nats_at(Model& model, const std::vector<std::int32_t>& tokens, std::size_t start, std::size_t at) {
  const std::vector<std::int32_t> inputs(tokens.begin() + static_cast<std::ptrdiff_t>(start),
                                         tokens.begin() + static_cast<std::ptrdiff_t>(at));
  std::vector<std::int32_t> targets(inputs.size(), -1);
  targets.back() = tokens[at];
  return model.loss({1, static_cast<std::int64_t>(inputs.size()), inputs, targets, {}}).sum;
}

TextLoss evaluated(Model& model, const std::vector<std::int32_t>& tokens, const EvaluateOptions& options,
                   std::size_t at_once) {
  Evaluator evaluator(model, options);
  for (std::size_t at = 0; at < tokens.size(); at += at_once) {
    const std::size_t count = std::min(at_once, tokens.size() - at);
    evaluator.add(std::span(tokens).subspan(at, count), static_cast<std::int64_t>(count));
  }
  return evaluator.finish();
}

TEST(Evaluator, PredictsEachTokenOnceFromItsWindow) {
  Model model(small_model(), 3);
  for (const std::int64_t ctx : {12, 5}) {
    for (const std::int64_t stride : {ctx, std::int64_t{3}, std::int64_t{1}}) {
      for (const std::size_t count : {1, 2, 5, 6, 7, 12, 13, 14, 24, 25, 26, 61}) {
        const std::vector<std::int32_t> tokens = tokens_of(count);
        double wanted = 0;
        for (std::size_t at = 1; at < count; ++at) {
          // The leftmost window whose targets include this token.
          std::size_t start = 0;
          while (start + static_cast<std::size_t>(ctx) < at) start += static_cast<std::size_t>(stride);
          wanted += nats_at(model, tokens, start, at);
        }
        const TextLoss loss = evaluated(model, tokens, {ctx, stride, 4}, 1000);
        ASSERT_EQ(loss.predicted, static_cast<std::int64_t>(count) - 1) << ctx << " " << stride << " " << count;
        EXPECT_NEAR(loss.nats, wanted, 1e-4 * (1 + wanted)) << ctx << " " << stride << " " << count;
        EXPECT_EQ(loss.tokens, static_cast<std::int64_t>(count));
      }
    }
  }
}

TEST(Evaluator, DoesNotDependOnBatchesOrThreads) {
  Model model(small_model(), 3);
  const std::vector<std::int32_t> tokens = tokens_of(301);
  const TextLoss whole = evaluated(model, tokens, {12, 7, 4}, 1000);
  for (const std::size_t at_once : {1, 5, 48, 300}) {
    set_num_threads(static_cast<int>(at_once % 3) + 1);
    const TextLoss loss = evaluated(model, tokens, {12, 7, 4}, at_once);
    EXPECT_EQ(loss.nats, whole.nats) << at_once;  // bit for bit
    EXPECT_EQ(loss.predicted, whole.predicted);
    EXPECT_EQ(loss.bytes, 301);
  }
  set_num_threads(0);
}

TEST(Evaluator, DerivesPerplexityAndBitsPerByte) {
  TextLoss loss{std::log(2.0) * 60, 60, 61, 122};
  EXPECT_DOUBLE_EQ(loss.loss(), std::log(2.0));
  EXPECT_DOUBLE_EQ(loss.perplexity(), 2);
  EXPECT_DOUBLE_EQ(loss.bits_per_byte(), 0.5);  // one bit per token of two bytes
  Model model(small_model(), 3);
  const TextLoss none = Evaluator(model, {}).finish();
  EXPECT_EQ(none.predicted, 0);
  EXPECT_EQ(none.loss(), 0);
}

TEST(Evaluator, RefusesInvalidArguments) {
  Model model(small_model(), 3);
  EXPECT_THAT([&] { Evaluator(model, {13, 0, 8}); }, ThrowsMessage<std::invalid_argument>(HasSubstr("12")));
  EXPECT_THROW(Evaluator(model, {12, 13, 8}), std::invalid_argument);
  EXPECT_THROW(Evaluator(model, {12, -1, 8}), std::invalid_argument);
  EXPECT_THROW(Evaluator(model, {12, 12, 0}), std::invalid_argument);
  Evaluator evaluator(model, {});
  const std::vector<std::int32_t> outside{257};
  EXPECT_THROW(evaluator.add(outside, 1), std::invalid_argument);
}

TEST(Evaluate, AgreesWithTheTrainersEvaluation) {
  TrainConfig config = small_training();
  config.eval_iters = 0;
  Trainer trainer = small_trainer(config);
  const EvalReport report = trainer.evaluate();
  std::int64_t done = 0;
  const TextLoss loss =
      evaluate(trainer.model(), trainer.data().validation(), {}, [&](std::int64_t now, std::int64_t) { done = now; });
  EXPECT_EQ(loss.predicted, report.tokens);
  EXPECT_NEAR(loss.loss(), report.loss, 1e-6);
  EXPECT_NEAR(loss.bits_per_byte(), report.bits_per_byte, 1e-6);
  EXPECT_EQ(done, 100);
}

TEST(Evaluate, OfATextMatchesItsTokens) {
  const TestDirectory directory;
  std::ofstream(directory / "a") << kText;
  std::ofstream(directory / "b.jsonl") << "{\"text\": \"the mat\"}\n";
  const Corpus corpus = Corpus::read({directory / "a", directory / "b.jsonl"}, {.validation_fraction = 0});
  Model model(small_model(), 3);
  const TextLoss text = evaluate(model, Tokenizer::bytes(), corpus, {});
  const TokenDataset tokens = TokenDataset::tokenize(corpus, Tokenizer::bytes(), directory / "tokens.bin");
  const TextLoss wanted = evaluate(model, tokens.training(), {});
  EXPECT_EQ(text.nats, wanted.nats);
  EXPECT_EQ(text.predicted, wanted.predicted);
  EXPECT_EQ(text.bytes, wanted.bytes);
  EXPECT_EQ(text.bytes, static_cast<std::int64_t>(kText.size()) + 7);
}

}  // namespace
}  // namespace qkv
