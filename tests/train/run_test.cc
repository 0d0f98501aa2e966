// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <limits>
#include <thread>

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

TEST(Run, EndsWithTheLastGoodCheckpointWhenTheLossIsNaN) {
  const TestDirectory directory;
  TrainConfig config = full_training();
  config.steps = 40;
  config.max_bad_steps = 5;
  config.checkpoint_interval = 2;
  Trainer trainer = small_trainer(config);
  TrainObserver observer;
  std::int64_t saved = -1;
  observer.on_checkpoint = [&](std::int64_t step) { saved = step; };
  observer.on_step = [&](const StepReport& report) {
    if (report.step == 7)
      trainer.model().change_parameters()[0].data()['t' * 16] = std::numeric_limits<float>::quiet_NaN();
  };
  try {
    run_training(trainer, {directory.path()}, observer);
    FAIL() << "no error";
  } catch (const TrainingDiverged& error) {
    EXPECT_EQ(error.step(), 12);
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

// Checkpoints are written in parallel with the next steps: waits until exactly these are complete.
void wait_for(const std::string& path, const std::vector<std::string>& checkpoints) {
  for (int i = 0; i < 10'000 && entries(path + "/checkpoints") != checkpoints; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(entries(path + "/checkpoints"), checkpoints);
}

// A run of 10 steps with a checkpoint at each; `trouble` starts after step 4 and ends after step 7. What was saved
// before stays loadable, failed saves are reported, and the final result is as if nothing had happened.
void survives(const std::string& path, const std::function<void()>& trouble, const std::function<void()>& relief,
              const std::string& says) {
  TrainConfig config = full_training();
  config.checkpoint_interval = 1;
  config.eval_interval = 5;
  Trainer whole = small_trainer(config);
  const TestDirectory straight;
  run_training(whole, {straight.path()}, {});
  Trainer trainer = small_trainer(config);
  std::vector<std::string> warnings;
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) {
    if (report.step == 5) {
      wait_for(path, {"step-000002", "step-000003", "step-000004"});
      trouble();
    }
    if (report.step == 7) {
      EXPECT_EQ(Trainer::resume(path, small_data()).steps_done(), 4);
    }
    if (report.step == 8) relief();
  };
  observer.on_warning = [&](const std::string& what) { warnings.push_back(what); };
  EXPECT_TRUE(run_training(trainer, {path}, observer));
  EXPECT_THAT(warnings, testing::Contains(testing::AllOf(HasSubstr("step 5: not saved"), HasSubstr(says),
                                                         HasSubstr("the checkpoint of step 4"))));
  EXPECT_THAT(warnings, testing::Not(testing::Contains(HasSubstr("step 8:"))));
  EXPECT_EQ(weights(trainer), weights(whole));
  EXPECT_EQ(Trainer::resume(path, small_data()).steps_done(), 10);
  EXPECT_THAT(entries(path + "/checkpoints"), ElementsAre("step-000008", "step-000009", "step-000010"));
  EXPECT_EQ(entries(path), entries(straight.path()));
  const auto steps_told = [](const std::string& directory) {
    std::ifstream file(directory + "/metrics.jsonl");
    std::vector<std::string> steps;
    for (std::string line; std::getline(file, line);) steps.push_back(line.substr(0, line.find(',', 20)));
    return steps;
  };
  EXPECT_EQ(steps_told(path), steps_told(straight.path()));
}

TEST(Run, ContinuesWhenNoFileMayGrow) {
  const TestDirectory directory;
  ::signal(SIGXFSZ, SIG_IGN);
  struct rlimit former {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &former), 0);
  const auto limit = [&](rlim_t bytes) {
    const struct rlimit lower { bytes, former.rlim_max };
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &lower), 0);
  };
  survives(
      directory.path(), [&] { limit(600); }, [&] { limit(former.rlim_cur); }, "File too large");
}

TEST(Run, ContinuesWhenTheDiskIsFull) {
  const TestDirectory directory;
  if (::mount("qkv-test", directory.path().c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "only root can make a small disk";
  const auto fill = [&] {  // to the last byte
    const int file = ::open((directory / "filling").c_str(), O_WRONLY | O_CREAT, 0666);
    const std::string piece(4096, 'x');
    while (::write(file, piece.data(), piece.size()) > 0) {
    }
    ::close(file);
  };
  survives(
      directory.path(), fill, [&] { fs::remove(directory / "filling"); }, "No space left on device");
  EXPECT_EQ(::umount2(directory.path().c_str(), MNT_DETACH), 0);
}

TEST(Run, ContinuesWhenPermissionIsLost) {
  const bool root = ::geteuid() == 0;  // root may do anything: become another user
  ASSERT_TRUE(!root || ::seteuid(65534) == 0);
  {
    const TestDirectory directory;
    const auto allow = [&](bool yes) {
      const auto bits = yes ? fs::perms::owner_all : fs::perms::owner_read | fs::perms::owner_exec;
      for (const std::string& path : {directory.path(), directory / "checkpoints"}) fs::permissions(path, bits);
    };
    survives(
        directory.path(), [&] { allow(false); }, [&] { allow(true); }, "Permission denied");
  }
  ASSERT_TRUE(!root || ::seteuid(0) == 0);
}

TEST(Run, RecreatesARemovedDirectory) {
  const TestDirectory above;
  const std::string path = above / "run";
  TrainConfig config = full_training();
  Trainer whole = small_trainer(config);
  const TestDirectory straight;
  run_training(whole, {straight.path()}, {});
  Trainer trainer = small_trainer(config);
  std::vector<std::string> warnings;
  TrainObserver observer;
  observer.on_checkpoint = [&](std::int64_t step) {  // when the save is complete
    if (step == 3) fs::remove_all(path);
  };
  observer.on_warning = [&](const std::string& what) { warnings.push_back(what); };
  EXPECT_TRUE(run_training(trainer, {path}, observer));
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("has been recreated")));
  EXPECT_EQ(weights(trainer), weights(whole));
  EXPECT_THAT(entries(path + "/checkpoints"), ElementsAre("step-000006", "step-000009", "step-000010"));
  EXPECT_THAT(contents(path + "/metrics.jsonl"), HasSubstr("\"step\":10,\"loss\""));
  EXPECT_EQ(contents(path + "/model.safetensors"), contents(straight / "model.safetensors"));
  EXPECT_EQ(Trainer::resume(path, small_data()).steps_done(), 10);
}

// The same while a checkpoint is being written, whichever finishes first.
TEST(Run, ReportsARemovedDirectoryDuringASave) {
  for (int turn = 0; turn < 20; ++turn) {
    const TestDirectory above;
    const std::string path = above / "run";
    Trainer trainer = small_trainer(full_training());
    std::vector<std::string> warnings;
    TrainObserver observer;
    observer.on_step = [&](const StepReport& report) {
      if (report.step != 7) return;  // the checkpoint of step 6 is being written
      std::this_thread::sleep_for(std::chrono::microseconds(50 * turn));
      fs::rename(path, above / "gone");
    };
    observer.on_warning = [&](const std::string& what) { warnings.push_back(what); };
    EXPECT_TRUE(run_training(trainer, {path}, observer));
    EXPECT_THAT(warnings, testing::Contains(HasSubstr("has been recreated")).Times(1));
    EXPECT_EQ(Trainer::resume(path, small_data()).steps_done(), 10);
  }
}

// The last checkpoint: with patience the save is retried, without it the error names the newest one saved.
TEST(Run, TheLastSaveIsRetried) {
  for (const double patience : {60.0, 0.0}) {
    const TestDirectory directory;
    const std::string checkpoints = directory / "checkpoints";
    Trainer trainer = small_trainer(full_training());
    TrainObserver observer;
    const auto block = [&] { fs::rename(checkpoints, checkpoints + "-away"), std::ofstream(checkpoints) << "x"; };
    const auto unblock = [&] { fs::remove(checkpoints), fs::rename(checkpoints + "-away", checkpoints); };
    observer.on_step = [&](const StepReport& report) {
      if (report.step != 10) return;
      wait_for(directory.path(), {"step-000003", "step-000006", "step-000009"});
      block();
    };
    int warnings = 0;
    observer.on_warning = [&](const std::string&) {
      if (++warnings == 1 && patience > 0) unblock();
    };
    const auto run = [&] { return run_training(trainer, {directory.path(), 0, 0, 0, patience}, observer); };
    if (patience > 0) {
      EXPECT_TRUE(run());
      EXPECT_EQ(warnings, 2);  // that saving failed, and that it then succeeded
      EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 10);
    } else {
      EXPECT_THAT(run, ThrowsMessage<FileError>(HasSubstr("the checkpoint of step 9")));
      unblock();
      EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 9);
    }
  }
}

TEST(Run, IsSavedWhenTheObserverThrows) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training());
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) {
    if (report.step == 5) throw std::runtime_error("closed pipe");
  };
  EXPECT_THAT([&] { run_training(trainer, {directory.path()}, observer); },
              ThrowsMessage<std::runtime_error>("closed pipe"));
  EXPECT_EQ(Trainer::resume(directory.path(), small_data()).steps_done(), 5);
}

TEST(RunDirectory, DistinguishesRunsFromOtherDirectories) {
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
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied) << "a user's file";
  fs::remove(directory / "checkpoints/diary.txt");
  std::ofstream(directory / "config.json") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied) << "a user's model";
  fs::remove(directory / "config.json");
  std::ofstream(directory / "novel.txt") << "x";
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::occupied);
  small_trainer().save(directory.path());
  EXPECT_EQ(inspect_run_directory(directory.path()), RunDirectory::resumable);
}

TEST(RunDirectory, IsLockedByOneProcessAtATime) {
  const TestDirectory directory;
  Trainer trainer = small_trainer(full_training()), other = small_trainer(full_training());
  TrainObserver observer;
  observer.on_step = [&](const StepReport& report) {
    if (report.step != 5) return;
    EXPECT_THAT([&] { run_training(other, {directory.path()}, {}); },
                ThrowsMessage<FileError>(HasSubstr("another training process")));
  };
  EXPECT_TRUE(run_training(trainer, {directory.path()}, observer));
}

}  // namespace
}  // namespace qkv
