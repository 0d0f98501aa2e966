// SPDX-License-Identifier: Apache-2.0
// A whole run in a directory: when it evaluates, samples and saves.
//
// A run is a function of its configuration and data alone: the same bits at any thread count, and the same bits whether
// it ran through or was stopped and resumed any number of times.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "qkv/trainer.h"

namespace qkv {

// The configuration that the run in a directory was last saved with, by the newest checkpoint whose list can be read.
// Throws qkv::FileError.
TrainConfig load_train_config(const std::string& directory);
// What a directory holds: nothing is there (absent), what a start left that was stopped before its first checkpoint, or
// nothing (unfinished_start), a run (resumable), or other things that a new run must not touch (occupied).
enum class RunDirectory : std::uint8_t { absent, unfinished_start, resumable, occupied };
RunDirectory inspect_run_directory(const std::string& directory);

// What a run tells; each may be empty. Called on the calling thread.
struct TrainObserver {
  std::function<void(const StepReport&)> on_step;  // every step
  std::function<void(const EvalReport&)> on_evaluation;
  // Time to show one; the model is at rest. What it returns goes to metrics.jsonl as the sample of that step, unless
  // it is empty.
  std::function<std::string(std::int64_t step)> on_sample;
  std::function<void(std::int64_t step)> on_checkpoint;  // written and synced; none among bad steps
  // Something could not be written, one line; the run goes on and tries again.
  std::function<void(const std::string& what)> on_warning;
  // Called between steps and between the batches of an evaluation; interrupt.h has the one of Ctrl-C.
  std::function<bool()> stop_requested;
  // Called within a step, between micro-batches, if a stop was requested: whether to drop the step.
  std::function<bool()> drop_step;
};

struct RunOptions {
  std::string directory;
  double flops_per_token = 0;        // of training (measure.h), and
  double peak_flops_per_second = 0;  // the machine's peak: their share goes to metrics.jsonl; 0: not known
  std::int64_t stop_after = 0;       // save and return after this step, whatever `steps` says; 0: no such limit
  double save_patience = 0;          // seconds that the last checkpoint of a complete run may be tried again for
};

// Steps until config().steps: evaluations, checkpoints (also one before the first step and one at the end), the best
// validation model in best/, metrics.jsonl (one JSON object a line; cut back to the run's step first). An evaluation
// that was due when the run was stopped is made up for. Returns true when the run is complete and false if it was asked
// to stop early; it is saved either way.
//
// A checkpoint that cannot be written (a full disk, a directory that is gone or closed) is told to on_warning, and the
// next interval tries again; so are best/ and metrics.jsonl. The first and the last one must succeed: the last one is
// tried again for save_patience seconds or until the run is asked to stop. An exception of the observer is passed on
// after a last attempt to save. Throws TrainingDiverged and qkv::FileError, also where another process is training in
// the directory; the checkpoints that were written stay whole.
bool run_training(Trainer& trainer, const RunOptions& options, const TrainObserver& observer);

}  // namespace qkv
