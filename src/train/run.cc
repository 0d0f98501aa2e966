// SPDX-License-Identifier: Apache-2.0
// The training loop: when to evaluate, sample and save, and how to handle write errors.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

#include "os/atomic_directory.h"
#include "os/atomic_file.h"
#include "qkv/error.h"
#include "qkv/model_file.h"
#include "train/checkpoint_directory.h"
#include "train/metrics.h"

namespace qkv {
namespace {

class Run {
 public:
  Run(Trainer& trainer, const RunOptions& options, const TrainObserver& observer)
      : trainer_(trainer), options_(options), observer_(observer) {}

  bool go() {
    begin();
    try {
      return steps();
    } catch (const TrainingDiverged&) {
      finish_save(true);
      throw;
    } catch (...) {  // anything the observer throws: a closed pipe, for example
      finish_save(true);
      if (at_rest_ && trainer_.bad_steps_in_a_row() == 0) try_to_save();
      throw;
    }
  }

 private:
  void begin() {
    make_directories(options_.directory);
    lock_.emplace(options_.directory);
    for (const char* below : {"", "/checkpoints", "/best"}) remove_leftovers(options_.directory + below);
    if (inspect_run_directory(options_.directory) == RunDirectory::resumable) {
      saved_step_ = trainer_.steps_done();
      saved_evaluation_ = trainer_.evaluated_step();
      const std::string checkpoint = checkpoint_path(options_.directory, saved_step_);
      if (file_exists(checkpoint)) {  // a crash may have come right after the checkpoint
        publish_checkpoint(checkpoint, options_.directory);
        remove_old_checkpoints(options_.directory, -1, saved_step_, trainer_.config().keep_checkpoints);
      }
      best_is_due_ = saved_step_ > 0 && trainer_.best_step() == saved_step_;  // or before best/ was published
    } else {
      save();  // from here on the run can be resumed
    }
    metrics_.emplace(options_.directory + "/metrics.jsonl", trainer_.steps_done(), trainer_.evaluated_step());
  }

  bool steps() {
    if (!evaluate_if_due()) return stop_here();
    apply_top_k();
    while (trainer_.steps_done() < trainer_.config().steps) {
      if (stop_asked()) return stop_here();
      if (!step()) return stop_here();
      if (stop_asked() && trainer_.steps_done() < trainer_.config().steps) return stop_here();
      if (!evaluate_if_due()) return stop_here();
      if (due(trainer_.config().sample_interval)) sample();
      if (due(trainer_.config().checkpoint_interval) && trainer_.bad_steps_in_a_row() == 0) start_saving();
      finish_save(false);
      if (trainer_.steps_done() < trainer_.config().steps) apply_top_k();
      report_error();
    }
    save_at_the_end(options_.save_patience);
    apply_top_k();
    return true;
  }

  bool due(std::int64_t interval) const { return interval > 0 && trainer_.steps_done() % interval == 0; }

  bool stop_requested() const { return observer_.stop_requested && observer_.stop_requested(); }
  bool stop_asked() const {
    return stop_requested() || (options_.stop_after > 0 && trainer_.steps_done() >= options_.stop_after);
  }

  bool stop_here() {
    save_at_the_end(0);
    return false;
  }

  // False if the step was abandoned because of a stop request.
  bool step() {
    StepReport report;
    at_rest_ = false;
    try {
      report = trainer_.step([this] { return stop_requested() && observer_.drop_step && observer_.drop_step(); });
    } catch (const StepStopped&) {
      at_rest_ = true;
      return false;
    } catch (const TrainingDiverged& error) {
      finish_save(true);
      throw TrainingDiverged(error.step(), error.what() + last_checkpoint_note());
    }
    at_rest_ = true;
    const double flops = options_.flops_per_token * static_cast<double>(report.tokens) / report.seconds;
    metrics_->write(report, options_.peak_flops_per_second > 0 ? flops / options_.peak_flops_per_second : -1);
    if (observer_.on_step) observer_.on_step(report);
    return true;
  }

  // False if the evaluation was stopped; the resumed run repeats it.
  bool evaluate_if_due() {
    const std::int64_t step = trainer_.steps_done();
    const std::int64_t interval = trainer_.config().eval_interval;
    if (!trainer_.has_validation() || interval == 0 || step == 0 || trainer_.evaluated_step() == step) return true;
    if (step % interval != 0 && step != trainer_.config().steps) return true;
    former_best_loss_ = trainer_.best_loss();
    former_best_step_ = trainer_.best_step();
    EvalReport report;
    try {
      report = trainer_.evaluate([this] { return stop_requested(); });
    } catch (const StepStopped&) {
      return false;
    }
    evaluated_well_ = std::isfinite(report.loss) ? step : evaluated_well_;
    best_is_due_ = report.best;
    metrics_->write(report);
    if (observer_.on_evaluation) observer_.on_evaluation(report);
    return true;
  }

  // Publishes the model of the best evaluation in best/: hard links to a checkpoint if there is one of this step.
  void apply_top_k() {
    if (!std::exchange(best_is_due_, false)) return;
    publish_best(trainer_.steps_done());
  }

  void publish_best(std::int64_t step) {
    const std::string best = options_.directory + "/best";
    try {
      if (saved_step_ == step)
        publish_checkpoint(checkpoint_path(options_.directory, saved_step_), best);
      else if (trainer_.adapters())
        save_lora(best, trainer_.model().config(), *trainer_.adapters());
      else
        save_model(best, trainer_.model(), trainer_.tokenizer(), trainer_.text_facts());
    } catch (const FileError& error) {
      trainer_.set_best(former_best_loss_, former_best_step_);  // of the model that is still in best/
      warn(std::string("could not save the best model: ") + error.what());
    }
  }

  void sample() {
    if (!observer_.on_sample) return;
    const std::string text = observer_.on_sample(trainer_.steps_done());
    if (!text.empty()) metrics_->write_sample(trainer_.steps_done(), text);
  }

  void save() {
    if (saved_step_ == trainer_.steps_done() && saved_evaluation_ == trainer_.evaluated_step()) return;
    trainer_.save(options_.directory);
    saved_step_ = trainer_.steps_done();
    saved_evaluation_ = trainer_.evaluated_step();
    warn_if_recreated();
    if (metrics_) metrics_->reopen_if_replaced();
    if (observer_.on_checkpoint) observer_.on_checkpoint(saved_step_);
  }

  // The directory may have been removed at any time; a save recreates it.
  void warn_if_recreated() {
    if (lock_->stands() || !file_exists(options_.directory)) return;
    warn(options_.directory + " was removed and has been recreated without the tokens; --resume will need the text");
    lock_.emplace(options_.directory);
  }

  // Saves on a separate thread during the next steps; the last save of a run is synchronous.
  void start_saving() {
    finish_save(true);
    if (trainer_.steps_done() == trainer_.config().steps || !file_exists(options_.directory)) {
      try_to_save();
      return;
    }
    trainer_.start_saving(options_.directory);
    begun_step_ = trainer_.steps_done();
    begun_evaluation_ = trainer_.evaluated_step();
    best_waits_ = std::exchange(best_is_due_, false);
  }

  void finish_save(bool wait) {
    try {
      const std::optional<std::int64_t> step = trainer_.finish_saving(wait);
      if (!step) return;
      saved_step_ = *step;
      saved_evaluation_ = begun_evaluation_;
      warn_if_recreated();
      if (metrics_) metrics_->reopen_if_replaced();
      if (observer_.on_checkpoint) observer_.on_checkpoint(saved_step_);
    } catch (const FileError& error) {
      warn(std::string("not saved: ") + error.what() + last_checkpoint_note(), begun_step_);
      if (std::exchange(best_waits_, false)) trainer_.set_best(former_best_loss_, former_best_step_);
      return;
    }
    if (std::exchange(best_waits_, false)) publish_best(saved_step_);
  }

  bool try_to_save() {
    try {
      save();
      if (std::exchange(last_warning_, "").starts_with("not saved")) warn("saved");
      return true;
    } catch (const FileError& error) {
      warn(std::string("not saved: ") + error.what() + last_checkpoint_note());
      return false;
    }
  }

  // If the last steps gave NaN, saves only if an evaluation of these weights was finite.
  void save_at_the_end(double patience) {
    finish_save(true);
    const std::int64_t step = trainer_.steps_done();
    if (trainer_.bad_steps_in_a_row() > 0 && evaluated_well_ != step) {
      throw TrainingDiverged(step, "[train] step " + std::to_string(step) +
                                       ": the loss or its gradient is NaN or infinite" + last_checkpoint_note());
    }
    at_rest_ = false;    // this is the last attempt
    double pause = 0.1;  // seconds between attempts, increasing
    for (double waited = 0; waited < patience; waited += pause, pause = std::min(2 * pause, 10.0)) {
      if (try_to_save()) return;
      for (double slept = 0; slept < pause && !stop_asked(); slept += 0.1)
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      if (stop_asked()) break;
    }
    try {
      save();
    } catch (const FileError& error) {
      throw FileError(error.path(), std::string(error.what()).substr(error.path().size() + 2) + last_checkpoint_note());
    }
  }

  void report_error() {
    const std::string trouble = metrics_->take_error();
    if (!trouble.empty()) warn(trouble + "; its lines are kept until they can be written");
  }

  void warn(const std::string& what) { warn(what, trainer_.steps_done()); }
  // Repeats of the same warning are reported once.
  void warn(const std::string& what, std::int64_t step) {
    if (what == std::exchange(last_warning_, what)) return;
    if (observer_.on_warning) observer_.on_warning("step " + std::to_string(step) + ": " + what);
  }

  static bool file_exists(const std::string& path) {
    std::error_code error;
    return std::filesystem::exists(path, error);
  }

  std::string last_checkpoint_note() const {
    return "; the checkpoint of step " + std::to_string(saved_step_) + " in " + options_.directory + " remains valid";
  }

  Trainer& trainer_;
  const RunOptions& options_;
  const TrainObserver& observer_;
  std::optional<DirectoryLock> lock_;
  std::optional<MetricsFile> metrics_;
  std::int64_t saved_step_ = -1, saved_evaluation_ = -1, evaluated_well_ = -1;
  bool at_rest_ = true;                                   // between steps, when the state can be saved
  bool best_is_due_ = false, best_waits_ = false;         // publish after this step; after the pending save
  std::int64_t begun_step_ = -1, begun_evaluation_ = -1;  // of the save in progress
  double former_best_loss_ = std::numeric_limits<double>::infinity();
  std::int64_t former_best_step_ = 0;
  std::string last_warning_;
};

}  // namespace

bool run_training(Trainer& trainer, const RunOptions& options, const TrainObserver& observer) {
  return Run(trainer, options, observer).go();
}

}  // namespace qkv
