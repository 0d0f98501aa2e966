// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "qkv/threads.h"
#include "qkv/train.h"
#include "train/small_run.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Four sequences; the first has one target and the second three, as in padded texts.
struct PaddedBatch {
  std::vector<std::int32_t> tokens{7, 8, 9, 10, 20, 21, 22, 23};
  std::vector<std::int32_t> targets{8, -1, -1, -1, 21, 22, 23, -1};
  Batch rows(std::int64_t first, std::int64_t count) const {
    const auto at = static_cast<std::size_t>(first * 4), size = static_cast<std::size_t>(count * 4);
    return {count, 4, std::span(tokens).subspan(at, size), std::span(targets).subspan(at, size), {}};
  }
};

TEST(Trainer, AccumulationWeighsEveryTargetEqually) {
  const PaddedBatch data;
  Trainer whole = small_trainer(), parts = small_trainer();
  const double first = whole.model().loss(data.rows(0, 1)).mean(), second = whole.model().loss(data.rows(1, 1)).mean();
  const Batch together[] = {data.rows(0, 2)}, apart[] = {data.rows(0, 1), data.rows(1, 1)};
  const StepReport a = whole.step(together), b = parts.step(apart);
  EXPECT_EQ(a.tokens, 4);
  EXPECT_EQ(b.tokens, 4);
  EXPECT_NEAR(a.loss, (first + 3 * second) / 4, 1e-6);
  EXPECT_NEAR(b.loss, a.loss, 1e-6);
  EXPECT_NEAR(b.grad_norm, a.grad_norm, 1e-5 * a.grad_norm);
  const auto x = moments(whole, "adamw.m."), y = moments(parts, "adamw.m.");
  ASSERT_FALSE(x.empty());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(x[i], y[i], 1e-7);
}

TEST(Trainer, AStepWithoutTargetsChangesNothing) {
  PaddedBatch data;
  data.targets.assign(8, -1);
  Trainer trainer = small_trainer();
  const std::vector<float> before = weights(trainer);
  const Batch batch[] = {data.rows(0, 2)};
  const StepReport report = trainer.step(batch);
  EXPECT_EQ(report.tokens, 0);
  EXPECT_EQ(report.loss, 0);
  EXPECT_FALSE(report.skipped);
  EXPECT_EQ(trainer.steps_done(), 1);
  EXPECT_EQ(weights(trainer), before);
}

TEST(Trainer, StartsAtTheLossOfARandomGuess) {
  Trainer trainer = small_trainer();
  EXPECT_NEAR(trainer.step().loss, std::log(257), 0.02 * std::log(257));
}

TEST(Trainer, Learns) {
  TrainConfig config = small_training();
  config.steps = 200;
  config.learning_rate = 1e-2;
  Trainer trainer = small_trainer(config);
  const EvalReport before = trainer.evaluate();
  StepReport last;
  while (trainer.steps_done() < config.steps) last = trainer.step();
  EXPECT_LT(last.loss, 1.5);
  EXPECT_DOUBLE_EQ(last.learning_rate, 1e-3);
  const EvalReport after = trainer.evaluate();
  EXPECT_LT(after.loss, 1.5);
  EXPECT_TRUE(before.best);
  EXPECT_TRUE(after.best);
  EXPECT_EQ(trainer.best_step(), 200);
}

TEST(Trainer, EvaluatesTheWholeValidationPartIfRequested) {
  TrainConfig config = small_training();
  config.eval_iters = 0;
  Trainer trainer = small_trainer(config);
  const EvalReport report = trainer.evaluate();
  EXPECT_EQ(report.tokens, 99);  // all but the first, in 9 windows; the last is short
  const TokenPart& part = trainer.data().validation();
  Loss sum;
  for (std::int64_t start = 0; start < 99; start += 12) {
    std::vector<std::int32_t> tokens(12), targets(12);
    part.read_window(start, tokens, targets);
    const Loss loss = trainer.model().loss({1, 12, tokens, targets, {}});
    sum.sum += loss.sum;
    sum.count += loss.count;
  }
  EXPECT_EQ(sum.count, 99);
  EXPECT_NEAR(report.loss, sum.mean(), 1e-5);
  EXPECT_NEAR(report.bits_per_byte, report.loss / std::numbers::ln2, 1e-12);  // one token per byte here
  EXPECT_FALSE(trainer.evaluate().best) << "an equal loss is not better";
}

TEST(Trainer, ClipsTheGradient) {
  TrainConfig config = small_training();
  config.grad_clip = 1e-3;
  config.beta1 = 0;  // the first moment is the clipped gradient
  Trainer trainer = small_trainer(config);
  EXPECT_GT(trainer.step().grad_norm, 0.1);
  double squares = 0;
  for (const float m : moments(trainer, "adamw.m.")) squares += double{m} * double{m};
  EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-8);
}

TEST(Trainer, GivesTheSameBitsAtAnyThreadCount) {
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Trainer trainer = small_trainer();
    for (int i = 0; i < 5; ++i) trainer.step();
    results.push_back(weights(trainer));
  }
  set_num_threads(0);
  EXPECT_EQ(results[1], results[0]);
  EXPECT_EQ(results[2], results[0]);
}

TEST(Trainer, SkipsAStepWithNaN) {
  Trainer trainer = small_trainer();
  trainer.step();
  const Model::ParameterAccess access = trainer.model().change_parameters();
  float& weight = access[0].data()['t' * 16];  // of a token that occurs in every window
  const float good = weight;
  weight = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> before = moments(trainer, "adamw.m.");
  const StepReport report = trainer.step();
  EXPECT_TRUE(report.skipped);
  EXPECT_EQ(moments(trainer, "adamw.m."), before);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.bad_steps_in_a_row(), 1);
  weight = good;
  EXPECT_FALSE(trainer.step().skipped);
  EXPECT_EQ(trainer.skipped_steps(), 1);
  EXPECT_EQ(trainer.bad_steps_in_a_row(), 0);
}

TEST(Trainer, EndsAfterTooManyBadSteps) {
  TrainConfig config = small_training();
  config.max_bad_steps = 3;
  Trainer trainer = small_trainer(config);
  trainer.step();
  trainer.model().change_parameters()[0].data()['t' * 16] = std::numeric_limits<float>::infinity();
  trainer.step();
  trainer.step();
  try {
    trainer.step();
    FAIL() << "no error";
  } catch (const TrainingDiverged& error) {
    EXPECT_EQ(error.step(), 4);
    EXPECT_THAT(error.what(), HasSubstr("step 4"));
  }
}

TEST(Trainer, RefusesMismatchedData) {
  const auto with = [](const TokenDataset& data) {
    Trainer(Model(small_model()), Tokenizer::bytes(), data, small_training());
  };
  std::vector<std::int32_t> twelve(12, 1), thirteen(13, 1);
  EXPECT_THAT([&] { with(TokenDataset::from_tokens(twelve, {}, 257)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("at least 13 tokens")));
  EXPECT_THROW(with(TokenDataset::from_tokens(thirteen, {}, 258)), std::invalid_argument);
  EXPECT_NO_THROW(with(TokenDataset::from_tokens(thirteen, {}, 257)));
  Trainer trainer(Model(small_model()), Tokenizer::bytes(), TokenDataset::from_tokens(thirteen, {1}, 257),
                  small_training());
  EXPECT_FALSE(trainer.has_validation());
  EXPECT_THROW(trainer.evaluate(), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
