// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "qkv/model_file.h"
#include "qkv/train.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

TrainConfig full_training() {
  TrainConfig config = small_training();
  config.eval_interval = 4;
  config.eval_iters = 2;
  config.checkpoint_interval = 3;
  return config;
}

std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Steps and evaluations as metrics.jsonl has them, without what depends on the clock.
std::vector<std::string> metrics(const std::string& directory) {
  std::ifstream file(directory + "/metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    auto json = nlohmann::json::parse(line);
    json.erase("ms");
    json.erase("tokens_per_s");
    lines.push_back(json.dump());
  }
  return lines;
}

TEST(Checkpoint, ResumesBitForBitWhereverItStopped) {
  const TestDirectory straight;
  Trainer whole = small_trainer(full_training());
  std::vector<double> rates;
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) { rates.push_back(report.learning_rate); };
  ASSERT_TRUE(run_training(whole, {straight.path()}, observer));
  for (const std::int64_t stop : {1, 4, 5, 6, 9}) {
    const TestDirectory broken;
    std::vector<double> broken_rates;
    TrainObserver other;
    other.on_step = [&](const StepReport& report) { broken_rates.push_back(report.learning_rate); };
    {
      Trainer first = small_trainer(full_training());
      ASSERT_FALSE(run_training(first, {broken.path(), 0, 0, stop}, other));
      EXPECT_EQ(first.steps_done(), stop);
    }
    Trainer second = Trainer::resume(broken.path(), small_data());
    EXPECT_EQ(second.steps_done(), stop);
    EXPECT_EQ(second.config(), full_training());
    ASSERT_TRUE(run_training(second, {broken.path()}, other));
    EXPECT_EQ(weights(second), weights(whole)) << stop;
    EXPECT_EQ(values(second.optimizer().first_moments()), values(whole.optimizer().first_moments()));
    EXPECT_EQ(values(second.optimizer().second_moments()), values(whole.optimizer().second_moments()));
    EXPECT_EQ(broken_rates, rates);
    EXPECT_EQ(metrics(broken.path()), metrics(straight.path()));
    EXPECT_EQ(second.best_loss(), whole.best_loss());
    for (const char* file :
         {"model.safetensors", "best/model.safetensors", "config.json", "tokenizer.json", "run_state.safetensors"}) {
      EXPECT_EQ(contents(broken / file), contents(straight / file)) << file;
    }
  }
}

TEST(Checkpoint, IsAModelToPassOn) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path()}, {});
  LoadedModel loaded = load_model(directory.path());
  EXPECT_EQ(values(loaded.model.parameters()), weights(trainer));
  EXPECT_EQ(loaded.tokenizer.size(), 257);
  EXPECT_NO_THROW(load_model(directory / "best"));
}

TEST(Checkpoint, LosesNothingOfWhatACrashLeftBehind) {
  const TestDirectory straight, crashed;
  Trainer whole = small_trainer(full_training());
  run_training(whole, {straight.path()}, {});
  Trainer first = small_trainer(full_training());
  run_training(first, {crashed.path(), 0, 0, 6}, {});
  for (int i = 0; i < 2; ++i) first.step();
  // The crash: the model of step 8 was written, the state of step 8 was not; metrics were, the last line in part.
  save_model(crashed.path(), first.model(), first.tokenizer());
  std::ofstream(crashed / "metrics.jsonl", std::ios::app) << "{\"step\":7,\"loss\":1}\n{\"step\":8,\"lo";
  std::ofstream(crashed / "run_state.safetensors.1234-0.tmp") << "half of it";
  Trainer second = Trainer::resume(crashed.path(), small_data());
  EXPECT_EQ(second.steps_done(), 6);
  run_training(second, {crashed.path()}, {});
  EXPECT_EQ(weights(second), weights(whole));
  EXPECT_EQ(metrics(crashed.path()), metrics(straight.path()));
}

TEST(Checkpoint, SaysWhyThereIsNothingToResume) {
  const TestDirectory directory;
  EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); },
              ThrowsMessage<FileError>(HasSubstr("no run to resume")));
  Trainer trainer = small_trainer();
  save_model(directory.path(), trainer.model(), trainer.tokenizer());
  EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); },
              ThrowsMessage<FileError>(HasSubstr("a model but no training state")));
  fs::copy_file(directory / "model.safetensors", directory / "run_state.safetensors");
  EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); },
              ThrowsMessage<FileError>(HasSubstr("weights alone")));
  EXPECT_THAT([&] { load_train_config(directory.path()); }, ThrowsMessage<FileError>(HasSubstr("weights alone")));
}

TEST(Checkpoint, RefusesADamagedState) {
  const TestDirectory directory;
  Trainer trainer = small_trainer();
  trainer.save(directory.path());
  const std::string path = directory / "run_state.safetensors", good = contents(path);
  const auto refused = [&](const std::string& bytes, const std::string& why) {
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); }, ThrowsMessage<FileError>(HasSubstr(why)));
  };
  refused(good.substr(0, good.size() - 1), path);
  refused(good.substr(0, 100), path);
  std::string flipped = good;
  flipped[good.size() - 1000] ^= 1;
  refused(flipped, "checksum");
  std::string older = good;
  older.replace(older.find("\\\"step\\\":0"), 10, "\\\"step\\\":9");
  refused(older, "checksum");
  std::string renamed = good;
  renamed.replace(renamed.find("adamw.m."), 8, "adamw.x.");
  refused(renamed, path);
  std::ofstream(path, std::ios::binary) << good;
  EXPECT_NO_THROW(Trainer::resume(directory.path(), small_data()));
}

TEST(Checkpoint, RefusesTheDataOfAnotherVocabulary) {
  const TestDirectory directory;
  small_trainer().save(directory.path());
  const TokenDataset other = TokenDataset::from_tokens(std::vector<std::int32_t>(50, 1), {}, 300);
  EXPECT_THROW(Trainer::resume(directory.path(), other), std::invalid_argument);
}

TEST(Checkpoint, IsNotReplacedByWeightsWithNaN) {
  const TestDirectory directory;
  Trainer trainer = small_trainer();
  trainer.save(directory.path());
  const std::string good = contents(directory / "run_state.safetensors");
  trainer.step();
  trainer.model().parameters()[1].data()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT([&] { trainer.save(directory.path()); }, ThrowsMessage<std::runtime_error>(HasSubstr("not saved")));
  EXPECT_EQ(contents(directory / "run_state.safetensors"), good);
}

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
  std::ofstream(directory / "config.json") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied) << "somebody's file";
  std::ofstream(directory / "tokens.bin") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::unfinished_start);
  EXPECT_EQ(inspect_run_directory(directory / "tokens.bin"), RunDirectory::occupied);
  std::ofstream(directory / "novel.txt") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied);
  small_trainer().save(directory.path());
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::resumable);
}

}  // namespace
}  // namespace qkv
