// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "qkv/error.h"
#include "qkv/train.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TEST(Run, EndsWithTheLastGoodCheckpointWhenTheLossTurnsNaN) {
  const TestDirectory directory;
  TrainConfig config = full_training();
  config.steps = 40;
  config.max_bad_steps = 5;
  config.checkpoint_interval = 1;
  Trainer trainer = small_trainer(config);
  TrainObserver observer;
  std::int64_t saved = -1;
  observer.on_checkpoint = [&](std::int64_t step) {
    saved = step;
    if (step == 6) trainer.model().parameters()[0].data()['t' * 16] = std::numeric_limits<float>::quiet_NaN();
  };
  try {
    run_training(trainer, {directory.path()}, observer);
    FAIL() << "no error";
  } catch (const TrainingDiverged& error) {
    EXPECT_EQ(error.step(), 11);
    EXPECT_THAT(error.what(), HasSubstr("checkpoint of step 6"));
  }
  EXPECT_EQ(saved, 6);
  Trainer again = Trainer::resume(directory.path(), small_data());
  EXPECT_EQ(again.steps_done(), 6);
  EXPECT_TRUE(run_training(again, {directory.path()}, {}));
}

TEST(Run, CallsForSamplesAndStopsWhenAsked) {
  const TestDirectory directory;
  TrainConfig config = full_training();
  config.sample_interval = 3;
  Trainer trainer = small_trainer(config);
  std::vector<std::int64_t> samples, checkpoints;
  TrainObserver observer;
  observer.on_sample = [&](std::int64_t step) {
    samples.push_back(step);
    return "sample " + std::to_string(step);
  };
  observer.on_checkpoint = [&](std::int64_t step) { checkpoints.push_back(step); };
  observer.stop_requested = [&] { return trainer.steps_done() >= 8; };
  EXPECT_FALSE(run_training(trainer, {directory.path()}, observer));
  EXPECT_THAT(samples, ElementsAre(3, 6));
  EXPECT_THAT(checkpoints, ElementsAre(0, 3, 6, 8));
}

TEST(RunDirectory, TellsARunFromOtherThings) {
  const TestDirectory directory;
  EXPECT_EQ(inspect_run_directory(directory / "none"), RunDirectory::absent);
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::unfinished_start);
  std::ofstream(directory / "tokens.bin") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::unfinished_start);
  EXPECT_EQ(inspect_run_directory(directory / "tokens.bin"), RunDirectory::occupied);
  fs::create_directories(directory / "checkpoints/step-000000.77-1.tmp");
  std::ofstream(directory / "tokens.bin.77-0.tmp") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::unfinished_start);
  std::ofstream(directory / "checkpoints/diary.txt") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied) << "somebody's file";
  fs::remove(directory / "checkpoints/diary.txt");
  std::ofstream(directory / "config.json") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied) << "somebody's model";
  fs::remove(directory / "config.json");
  std::ofstream(directory / "novel.txt") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied);
  small_trainer().save(directory.path());
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::resumable);
}

TEST(RunDirectory, IsHeldByOneProcessAtATime) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training()), other = small_trainer(full_training());
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) {
    if (report.step != 5) return;
    EXPECT_THAT([&] { run_training(other, {directory.path()}, {}); },
                ThrowsMessage<FileError>(HasSubstr("another process")));
  };
  EXPECT_TRUE(run_training(trainer, {directory.path()}, observer));
}

}  // namespace
}  // namespace qkv
