// SPDX-License-Identifier: Apache-2.0
// The loop around the steps of a run: what happens when.
#include <cmath>

#include "os/atomic_file.h"
#include "qkv/model_file.h"
#include "train/metrics.h"

namespace qkv {
namespace {

class Run {
 public:
  Run(Trainer& trainer, const RunOptions& options, const TrainObserver& observer)
      : trainer_(trainer),
        options_(options),
        observer_(observer),
        metrics_(options.directory + "/metrics.jsonl", trainer.steps_done()) {}

  bool go() {
    const bool kept = inspect_run_directory(options_.directory) == RunDirectory::resumable;
    if (kept) saved_step_ = trainer_.steps_done(), saved_evaluation_ = trainer_.evaluated_step();
    if (!kept) save();  // from here on there is a run to resume
    evaluate_if_due();
    while (trainer_.steps_done() < trainer_.config().steps) {
      if (stop_asked()) return stop_here();
      step();
      if (stop_asked() && trainer_.steps_done() < trainer_.config().steps) return stop_here();
      evaluate_if_due();
      if (due(trainer_.config().sample_interval)) sample();
      if (due(trainer_.config().checkpoint_interval) && trainer_.bad_steps_in_a_row() == 0) save();
    }
    save_or_throw();
    return true;
  }

 private:
  bool due(std::int64_t interval) const { return interval > 0 && trainer_.steps_done() % interval == 0; }

  bool stop_asked() const {
    return (observer_.stop_requested && observer_.stop_requested()) ||
           (options_.stop_after > 0 && trainer_.steps_done() >= options_.stop_after);
  }

  bool stop_here() {
    save_or_throw();
    return false;
  }

  void step() {
    StepReport report;
    try {
      report = trainer_.step();
    } catch (const TrainingDiverged& error) {
      throw TrainingDiverged(error.step(), error.what() + what_stands());
    }
    const double flops = options_.flops_per_token * static_cast<double>(report.tokens) / report.seconds;
    metrics_.write(report, options_.peak_flops_per_second > 0 ? flops / options_.peak_flops_per_second : -1);
    if (observer_.on_step) observer_.on_step(report);
  }

  void evaluate_if_due() {
    const std::int64_t step = trainer_.steps_done();
    const std::int64_t interval = trainer_.config().eval_interval;
    if (!trainer_.has_validation() || interval == 0 || step == 0 || trainer_.evaluated_step() == step) return;
    if (step % interval != 0 && step != trainer_.config().steps) return;
    const EvalReport report = trainer_.evaluate();
    evaluated_well_ = std::isfinite(report.loss) ? step : evaluated_well_;
    metrics_.write(report);
    if (report.best) save_model(options_.directory + "/best", trainer_.model(), trainer_.tokenizer());
    if (observer_.on_evaluation) observer_.on_evaluation(report);
  }

  void sample() {
    if (!observer_.on_sample) return;
    const std::string text = observer_.on_sample(trainer_.steps_done());
    if (!text.empty()) metrics_.write_sample(trainer_.steps_done(), text);
  }

  void save() {
    if (saved_step_ == trainer_.steps_done() && saved_evaluation_ == trainer_.evaluated_step()) return;
    trainer_.save(options_.directory);
    saved_step_ = trainer_.steps_done();
    saved_evaluation_ = trainer_.evaluated_step();
    if (observer_.on_checkpoint) observer_.on_checkpoint(saved_step_);
  }

  // At the end. Weights that gave NaN in the last steps are only worth keeping if an evaluation found them sound.
  void save_or_throw() {
    const std::int64_t step = trainer_.steps_done();
    if (trainer_.bad_steps_in_a_row() > 0 && evaluated_well_ != step) {
      throw TrainingDiverged(step, "[train] step " + std::to_string(step) +
                                       ": the loss or its gradient is NaN or infinite" + what_stands());
    }
    save();
  }

  std::string what_stands() const {
    return "; the checkpoint of step " + std::to_string(saved_step_) + " in " + options_.directory + " stands";
  }

  Trainer& trainer_;
  const RunOptions& options_;
  const TrainObserver& observer_;
  MetricsFile metrics_;
  std::int64_t saved_step_ = -1, saved_evaluation_ = -1, evaluated_well_ = -1;
};

}  // namespace

bool run_training(Trainer& trainer, const RunOptions& options, const TrainObserver& observer) {
  make_directories(options.directory);
  return Run(trainer, options, observer).go();
}

}  // namespace qkv
