// SPDX-License-Identifier: Apache-2.0
// A complete training run in a directory: training loop with evaluation, samples and checkpoints.
//
// A run depends only on its configuration and data: it is bit-identical at any thread count, and whether or not it was
// stopped and resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "qkv/trainer.h"

namespace qkv {

// The configuration that the run in a directory was last saved with, from the newest readable checkpoint.json. Throws
// qkv::FileError.
TrainConfig load_train_config(const std::string& directory);
// State of a directory: does not exist (absent); empty, or left by a run that stopped before its first checkpoint
// (unfinished_start); has a run (resumable); has other files that a new run must not touch (occupied).
enum class RunDirectory : std::uint8_t { absent, unfinished_start, resumable, occupied };
RunDirectory inspect_run_directory(const std::string& directory);

// Callbacks of a run; each may be empty. Called on the calling thread.
struct TrainObserver {
  std::function<void(const StepReport&)> on_step;  // every step
  std::function<void(const EvalReport&)> on_evaluation;
  // Called when a sample is due; the model is idle. The returned text, unless empty, is written to metrics.jsonl as the
  // sample of that step.
  std::function<std::string(std::int64_t step)> on_sample;
  std::function<void(std::int64_t step)> on_checkpoint;  // written and synced; none during bad steps
  // Something could not be written (one line); the run continues and retries.
  std::function<void(const std::string& what)> on_warning;
  // Called between steps and between evaluation batches; for Ctrl-C, use interrupt.h.
  std::function<bool()> stop_requested;
  // Called between the micro-batches of a step if a stop was requested: whether to discard the step.
  std::function<bool()> drop_step;
};

struct RunOptions {
  std::string directory;
  double flops_per_token = 0;        // of training (measure.h)
  double peak_flops_per_second = 0;  // the machine's peak, for the utilization in metrics.jsonl; 0: unknown
  std::int64_t stop_after = 0;       // save and return after this step, even if `steps` is larger; 0: off
  double save_patience = 0;          // seconds to keep retrying the last checkpoint of a complete run
};

// Trains until config().steps, with evaluations, checkpoints (including one before the first step and one at the end),
// the best validation model in best/, and metrics.jsonl (one JSON object per line; first truncated to the run's step).
// An evaluation that was due when the run was stopped is done on resume. Returns true if the run is complete, false if
// it was asked to stop early; it is saved either way.
//
// If a checkpoint cannot be written (disk full, directory removed or not writable), on_warning is called and the next
// interval retries; the same holds for best/ and metrics.jsonl. The first and last checkpoints must succeed: the last
// one is retried for save_patience seconds or until the run is asked to stop. An exception from the observer propagates
// after a last attempt to save. Throws TrainingDiverged and qkv::FileError, also if another process is training in the
// directory; existing checkpoints stay intact.
bool run_training(Trainer& trainer, const RunOptions& options, const TrainObserver& observer);

}  // namespace qkv
