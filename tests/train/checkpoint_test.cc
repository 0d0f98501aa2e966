// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "qkv/error.h"
#include "qkv/model_file.h"
#include "qkv/train.h"
#include "train/checkpoint_directory.h"
#include "train/small_run.h"
#include "train/test_directory.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Steps and evaluations in metrics.jsonl, without the fields that depend on the time.
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

void expect_resumes_bit_for_bit(const TrainConfig& config) {
  const TestDirectory straight;
  Trainer whole = small_trainer(config);
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
      Trainer first = small_trainer(config);
      ASSERT_FALSE(run_training(first, {broken.path(), 0, 0, stop}, other));
      EXPECT_EQ(first.steps_done(), stop);
    }
    Trainer second = Trainer::resume(broken.path(), small_data());
    EXPECT_EQ(second.steps_done(), stop);
    EXPECT_EQ(second.config(), config);
    ASSERT_TRUE(run_training(second, {broken.path()}, other));
    EXPECT_EQ(weights(second), weights(whole)) << stop;
    EXPECT_EQ(moments(second, ""), moments(whole, ""));
    EXPECT_EQ(broken_rates, rates);
    EXPECT_EQ(metrics(broken.path()), metrics(straight.path()));
    EXPECT_EQ(second.best_loss(), whole.best_loss());
    for (const char* file :
         {"model.safetensors", "best/model.safetensors", "config.json", "tokenizer.json",
          "checkpoints/step-000010/checkpoint.json", "checkpoints/step-000010/optimizer.safetensors"}) {
      EXPECT_EQ(contents(broken / file), contents(straight / file)) << file;
    }
  }
}

TEST(Checkpoint, ResumesBitForBitWhereverItStopped) {
  for (const std::string& optimizer : optimizer_names()) {
    SCOPED_TRACE(optimizer);
    TrainConfig config = full_training();
    config.optimizer = optimizer;
    expect_resumes_bit_for_bit(config);
  }
}

// A directory from an older version: its settings have no optimizer, which was AdamW.
TEST(Checkpoint, WithoutAnOptimizerNameMeansAdamW) {
  const TestDirectory directory;
  Trainer trainer = small_trainer();
  trainer.step();
  trainer.save(directory.path());
  const std::string newest = directory / "checkpoints/step-000001";
  CheckpointList list = read_checkpoint_list(newest);
  auto state = nlohmann::json::parse(list.state);
  EXPECT_EQ(state["config"]["optimizer"], "adamw");
  state["config"].erase("optimizer");
  state["config"].erase("muon_momentum");
  list.state = state.dump();
  write_checkpoint_list(newest, list);
  EXPECT_EQ(Trainer::resume(directory.path(), small_data()).config(), trainer.config());
}

TEST(Checkpoint, RunDirectoryIsALoadableModel) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path()}, {});
  LoadedModel loaded = load_model(directory.path());
  EXPECT_EQ(values(loaded.model.parameters()), weights(trainer));
  EXPECT_EQ(loaded.tokenizer.size(), 257);
  EXPECT_NO_THROW(load_model(directory / "best"));
}

TEST(Checkpoint, IsALoadableModelAndIsWrittenOnce) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path()}, {});
  for (const char* step : {"step-000006", "step-000009", "step-000010"})
    EXPECT_NO_THROW(load_model(directory / "checkpoints/" + step));
  // One file with several names.
  for (const char* name : {"config.json", "tokenizer.json", "model.safetensors"})
    EXPECT_TRUE(fs::equivalent(directory / name, directory / "checkpoints/step-000010/" + name)) << name;
}

TEST(Checkpoint, TheNewestAreKept) {
  const TestDirectory directory;
  TrainConfig config = full_training();
  config.checkpoint_interval = 1;
  config.keep_checkpoints = 2;
  Trainer trainer = small_trainer(config);
  std::vector<std::size_t> counts;
  TrainObserver observer;
  observer.on_checkpoint = [&](std::int64_t) { counts.push_back(entries(directory / "checkpoints").size()); };
  run_training(trainer, {directory.path()}, observer);
  EXPECT_THAT(counts, ElementsAre(1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2));
  EXPECT_THAT(entries(directory / "checkpoints"), ElementsAre("step-000009", "step-000010"));
  trainer.save(directory.path());  // saving the same step again replaces it
  EXPECT_THAT(entries(directory / "checkpoints"), ElementsAre("step-000009", "step-000010"));
  EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 10);
}

TEST(Checkpoint, RecoversFromACrashWithoutLoss) {
  const TestDirectory straight, crashed;
  Trainer whole = small_trainer(full_training());
  run_training(whole, {straight.path()}, {});
  Trainer first = small_trainer(full_training());
  run_training(first, {crashed.path(), 0, 0, 6}, {});
  for (int i = 0; i < 2; ++i) first.step();
  // The crash: half of the checkpoint of step 8 was written, and the metrics, the last line partially. Process IDs are
  // below 2^22, so this one does not exist.
  save_model(crashed / "checkpoints/step-000008.8388607-0.tmp", first.model(), first.tokenizer());
  std::ofstream(crashed / "model.safetensors.8388607-1.tmp") << "half of it";
  std::ofstream(crashed / "metrics.jsonl", std::ios::app) << "{\"step\":7,\"loss\":1}\n{\"step\":8,\"lo";
  Trainer second = Trainer::resume(crashed.path(), small_data());
  EXPECT_EQ(second.steps_done(), 6);
  run_training(second, {crashed.path()}, {});
  EXPECT_EQ(weights(second), weights(whole));
  EXPECT_EQ(metrics(crashed.path()), metrics(straight.path()));
  EXPECT_EQ(entries(crashed.path()), entries(straight.path()));
  EXPECT_EQ(entries(crashed / "checkpoints"), entries(straight / "checkpoints"));
}

TEST(Checkpoint, ACrashBeforeTheModelIsLinkedIsRepaired) {
  const TestDirectory directory;
  Trainer first = small_trainer(full_training());
  run_training(first, {directory.path(), 0, 0, 6}, {});
  fs::remove(directory / "model.safetensors");
  fs::remove_all(directory / "best");
  fs::copy_file(directory / "checkpoints/step-000003/model.safetensors", directory / "model.safetensors");
  Trainer second = Trainer::resume(directory.path(), small_data());
  run_training(second, {directory.path(), 0, 0, 6}, {});
  EXPECT_EQ(contents(directory / "model.safetensors"),
            contents(directory / "checkpoints/step-000006/model.safetensors"));
}

TEST(Checkpoint, ExplainsWhyThereIsNothingToResume) {
  const TestDirectory directory;
  const auto resume = [&] { Trainer::resume(directory.path(), small_data()); };
  EXPECT_THAT(resume, ThrowsMessage<FileError>(HasSubstr("no checkpoint to resume from")));
  EXPECT_THAT([&] { load_train_config(directory.path()); },
              ThrowsMessage<FileError>(HasSubstr("no checkpoint to resume from")));
  Trainer trainer = small_trainer();
  save_model(directory.path(), trainer.model(), trainer.tokenizer());
  EXPECT_THAT(resume, ThrowsMessage<FileError>(HasSubstr("a model but no training state")));
  std::ofstream(directory / "run_state.safetensors") << "x";
  EXPECT_THAT(resume, ThrowsMessage<FileError>(HasSubstr("earlier version")));
}

// Every file of the newest checkpoint, truncated or with one bit flipped: refused by name, and the previous one is
// used.
TEST(Checkpoint, ADamagedOneIsRefusedAndThePreviousOneUsed) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path()}, {});
  const std::string newest = directory / "checkpoints/step-000010/";
  const auto refused = [&](const std::string& name, const std::string& bytes) {
    const std::string good = contents(newest + name);
    std::ofstream(newest + name, std::ios::binary) << bytes;
    std::vector<std::string> reasons;
    EXPECT_EQ(Trainer::resume(directory.path(), small_data(), &reasons).steps_done(), 9) << name;
    EXPECT_THAT(reasons, ElementsAre(HasSubstr(newest + name))) << name;
    std::ofstream(newest + name, std::ios::binary) << good;
  };
  for (const char* name :
       {"config.json", "tokenizer.json", "model.safetensors", "optimizer.safetensors", "checkpoint.json"}) {
    const std::string good = contents(newest + name);
    refused(name, good.substr(0, good.size() - 2));
    refused(name, good.substr(0, good.size() / 2));
    refused(name, "");
    for (const std::size_t at : {std::size_t{20}, good.size() / 2, good.size() - 9}) {
      std::string flipped = good;
      flipped[at] ^= 1;
      refused(name, flipped);
    }
    fs::rename(newest + name, newest + "away");
    std::vector<std::string> reasons;
    EXPECT_EQ(Trainer::resume(directory.path(), small_data(), &reasons).steps_done(), 9);
    EXPECT_THAT(reasons, ElementsAre(HasSubstr(newest + name)));
    fs::rename(newest + "away", newest + name);
  }
  EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 10);
}

TEST(Checkpoint, ResumingFromThePreviousOneGivesTheSameBits) {
  const TestDirectory directory;
  Trainer whole = small_trainer(full_training());
  run_training(whole, {directory.path()}, {});
  const std::string path = directory / "checkpoints/step-000010/model.safetensors", good = contents(path);
  fs::resize_file(path, good.size() / 2);  // model.safetensors in the directory is the same file
  Trainer second = Trainer::resume(directory.path(), small_data());
  EXPECT_TRUE(run_training(second, {directory.path()}, {}));
  EXPECT_EQ(contents(path), good);
  EXPECT_EQ(contents(directory / "model.safetensors"), good);
  EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 10);
}

TEST(Checkpoint, NamesAllDamagedOnesIfNoneIsLeft) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path()}, {});
  for (const char* step : {"step-000006", "step-000009", "step-000010"})
    fs::resize_file(directory / "checkpoints/" + step + "/optimizer.safetensors", 100);
  EXPECT_THAT([&] { Trainer::resume(directory.path(), small_data()); },
              ThrowsMessage<FileError>(testing::AllOf(HasSubstr("step-000006"), HasSubstr("step-000010"))));
}

// Complete and with valid checksums, but inconsistent: hostile rather than damaged.
TEST(Checkpoint, AForgedOneIsRefused) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  run_training(trainer, {directory.path(), 0, 0, 3}, {});
  const std::string newest = directory / "checkpoints/step-000003";
  const auto forge = [&](const std::string& name, const std::function<void()>& change) {
    CheckpointList list = read_checkpoint_list(newest);
    const CheckpointList honest = list;
    fs::rename(newest + "/" + name, newest + "/kept");
    change();
    list.files[name] = facts_of_file(newest + "/" + name);
    write_checkpoint_list(newest, list);
    std::vector<std::string> reasons;
    EXPECT_EQ(Trainer::resume(directory.path(), small_data(), &reasons).steps_done(), 0);
    EXPECT_EQ(reasons.size(), 1u);
    fs::rename(newest + "/kept", newest + "/" + name);
    write_checkpoint_list(newest, honest);
  };
  forge("optimizer.safetensors",
        [&] { fs::copy_file(newest + "/model.safetensors", newest + "/optimizer.safetensors"); });
  forge("model.safetensors", [&] { fs::copy_file(newest + "/optimizer.safetensors", newest + "/model.safetensors"); });
  forge("config.json", [&] { std::ofstream(newest + "/config.json") << "{}"; });
  CheckpointList list = read_checkpoint_list(newest);
  list.state = "{\"step\": -1}";
  write_checkpoint_list(newest, list);
  std::vector<std::string> reasons;
  EXPECT_EQ(Trainer::resume(directory.path(), small_data(), &reasons).steps_done(), 0);
  EXPECT_THAT(reasons, ElementsAre(HasSubstr("training state is not valid")));
}

TEST(Checkpoint, RefusesOtherTokensThanTheRunBeganWith) {
  const TestDirectory directory;
  Trainer trainer = small_trainer();
  trainer.step();
  trainer.save(directory.path());
  std::vector<std::int32_t> training(900, 'a'), validation(100, 'b');
  EXPECT_THAT([&] { Trainer::resume(directory.path(), TokenDataset::from_tokens(training, validation, 257)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("checksum mismatch")));
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
  trainer.step();
  trainer.model().change_parameters()[1].data()[3] = std::numeric_limits<float>::infinity();
  EXPECT_THAT([&] { trainer.save(directory.path()); }, ThrowsMessage<std::runtime_error>(HasSubstr("not saved")));
  EXPECT_THAT(entries(directory / "checkpoints"), ElementsAre("step-000000"));
}

}  // namespace
}  // namespace qkv
