// SPDX-License-Identifier: Apache-2.0
#include "train/loss_spike.h"

#include <gtest/gtest.h>

#include "qkv/train.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

// 1, 3, 1, 3, ...: mean 2, deviation sqrt(n / (n - 1)).
std::vector<double> waves(std::size_t count) {
  std::vector<double> losses;
  for (std::size_t i = 0; i < count; ++i) losses.push_back(i % 2 ? 3 : 1);
  return losses;
}

TEST(Spike, IsSixDeviationsAboveTheMean) {
  std::vector<double> recent = waves(128);
  const double deviation = std::sqrt(128.0 / 127.0);
  EXPECT_EQ(spike_of(recent, 2 + 5.99 * deviation), 0);
  recent = waves(128);
  EXPECT_NEAR(spike_of(recent, 2 + 6.01 * deviation), 6.01, 1e-9);
  recent = waves(128);
  EXPECT_EQ(spike_of(recent, 2 - 20 * deviation), 0) << "a falling loss is not a spike";
}

TEST(Spike, LooksBackAt128Losses) {
  std::vector<double> recent(128, 100.0);
  for (const double loss : waves(128)) spike_of(recent, loss);
  EXPECT_EQ(recent, waves(128));
  EXPECT_GT(spike_of(recent, 10), 7.9);  // relative to only the waves
  EXPECT_EQ(recent.size(), 128u);
  EXPECT_EQ(recent.back(), 10);
}

TEST(Spike, NeedsEnoughLosses) {
  std::vector<double> recent = waves(31);
  EXPECT_EQ(spike_of(recent, 1000), 0);
  recent = waves(32);
  EXPECT_GT(spike_of(recent, 1000), 6);
}

TEST(Spike, LossesThatDoNotVary) {
  std::vector<double> recent(64, 2.0);
  EXPECT_EQ(spike_of(recent, 2.0), 0);
  EXPECT_EQ(spike_of(recent, 2.000001), 0);
  recent.assign(64, 2.0);
  EXPECT_GT(spike_of(recent, 2.1), 6);
  recent.assign(64, 0.0);
  EXPECT_EQ(spike_of(recent, 0.0), 0);
}

// A step on unfamiliar text, and the same after resuming in between: the window of recent losses is saved.
TEST(Spike, IsReportedAndSurvivesResuming) {
  TrainConfig config = small_training();
  config.steps = 1000;
  config.learning_rate = 1e-2;
  const TestDirectory directory;
  Trainer trainer = small_trainer(config);
  std::vector<std::int32_t> tokens(36), targets(36);  // [3, 12]
  for (std::size_t i = 0; i < 36; ++i) tokens[i] = targets[i] = static_cast<std::int32_t>(200 + i % 12);
  const Batch strange{3, 12, tokens, targets, {}};
  for (int i = 0; i < 20; ++i) EXPECT_EQ(trainer.step().spike, 0);
  trainer.save(directory.path());
  Trainer resumed = Trainer::resume(directory.path(), small_data());
  for (Trainer* one : {&trainer, &resumed})
    for (int i = 0; i < 180; ++i) EXPECT_EQ(one->step().spike, 0) << i;
  const StepReport report = trainer.step({&strange, 1});
  EXPECT_GT(report.spike, 6);
  EXPECT_EQ(resumed.step({&strange, 1}).spike, report.spike);
}

}  // namespace
}  // namespace qkv
