// SPDX-License-Identifier: Apache-2.0
// Training a model: steps, evaluation, checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "qkv/dataset.h"
#include "qkv/lora.h"
#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/tokenizer.h"
#include "qkv/train_config.h"

namespace qkv {

struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // nats per token, before the update
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;       // targets that are not -1
  double seconds = 0;            // of the whole step
  double optimizer_seconds = 0;  // of these: gradient norm and optimizer
  double data_seconds = 0;       // of these: reading token windows
  bool skipped = false;          // NaN or inf: nothing was updated
  double spike = 0;              // z-score of the loss against up to 128 previous losses, if above 6; else 0
};

struct EvalReport {
  std::int64_t step = 0;
  double loss = 0;           // nats per token
  double bits_per_byte = 0;  // loss * tokens / (bytes * ln 2), over the whole split
  std::int64_t tokens = 0;   // predicted
  bool best = false;         // the lowest loss so far
};

// A step or an evaluation was stopped on request.
class StepStopped : public std::runtime_error {
 public:
  StepStopped() : std::runtime_error("[train] stopped before the step was done") {}
};

// Too many consecutive steps had NaN or inf, or the run ended during such steps. Nothing was saved since they began, so
// the last checkpoint is good.
class TrainingDiverged : public std::runtime_error {
 public:
  TrainingDiverged(std::int64_t step, const std::string& what) : std::runtime_error(what), step_(step) {}
  std::int64_t step() const noexcept { return step_; }

 private:
  std::int64_t step_;
};

// Trains one model. Not thread-safe; it uses qkv::num_threads() threads internally.
class Trainer {
 public:
  // Throws std::invalid_argument if config is invalid, the model's vocabulary is too small, or the training split is
  // shorter than one window plus one token.
  Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config);
  // Trains and saves only the adapters (docs/formats.md); the model's own parameters do not change. Also throws
  // std::invalid_argument if the adapters do not match the model.
  Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config, LoraAdapters adapters);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // One optimizer step on the next grad_accum * batch_size sequences, or on the given micro-batches. Every target that
  // is not -1 has equal weight. A step without targets only increments the step count. Throws TrainingDiverged. `stop`
  // is called before each micro-batch but the first; if it returns true, StepStopped is thrown and nothing has changed.
  StepReport step(const std::function<bool()>& stop = {});
  StepReport step(std::span<const Batch> micro_batches);
  // Updates only the best loss. Needs at least two validation tokens (has_validation()). `stop` is called before each
  // batch; if it returns true, StepStopped is thrown and nothing has changed.
  EvalReport evaluate(const std::function<bool()>& stop = {});
  bool has_validation() const noexcept;

  std::int64_t steps_done() const noexcept;
  std::int64_t skipped_steps() const noexcept;       // since the start of the run
  std::int64_t bad_steps_in_a_row() const noexcept;  // up to the latest step
  std::int64_t evaluated_step() const noexcept;      // step of the latest evaluation; 0: none yet
  double best_loss() const noexcept;                 // over all evaluations; infinity before the first
  std::int64_t best_step() const noexcept;
  // Overrides the best evaluation, for a caller that failed to save the model of a better one.
  void set_best(double loss, std::int64_t step) noexcept;
  const TrainConfig& config() const noexcept;
  // Takes effect from the next step. Throws std::invalid_argument, also if the optimizer differs from the run's.
  void set_config(const TrainConfig& config);
  Model& model() noexcept;                        // with the adapters, if any, added
  const LoraAdapters* adapters() const noexcept;  // null if the run trains all parameters
  const Tokenizer& tokenizer() const noexcept;
  // End tokens and chat template of the run's initial model, saved with its checkpoints; empty by default.
  const TextFacts& text_facts() const noexcept;
  void set_text_facts(TextFacts facts);
  const TokenDataset& data() const noexcept;
  const Optimizer& optimizer() const noexcept;  // of the parameters, or of LoraAdapters::values

  // Writes the checkpoint directory/checkpoints/step-NNNNNN: a model directory plus optimizer moments, training state
  // and a checksum of every file, created atomically and synced. The directory's own config.json, model.safetensors and
  // tokenizer.json (the model to use) become hard links to its files. Of the checkpoints up to this step, the newest
  // config().keep_checkpoints are kept. docs/formats.md. Throws qkv::FileError, leaving the previous files in place.
  // Refuses (std::runtime_error) to save weights with NaN or inf.
  void save(const std::string& directory);
  // The same in a background thread, from a copy of weights and moments, while training continues; finish_saving()
  // throws what save() would. Waits for a save still in progress.
  void start_saving(const std::string& directory);
  // The step of the background save, once complete; waits for it if `wait`. Empty if none was started or it is still in
  // progress. Throws what save() throws; no save is in progress after that.
  std::optional<std::int64_t> finish_saving(bool wait);
  // Resumes from the newest valid checkpoint, with tokens from `data`. A checkpoint that is damaged (or of another
  // version) is skipped, and a line naming the file and the problem is appended to `refused`. The directory's own model
  // is restored from the checkpoint, if it can be written. Throws qkv::FileError if no valid checkpoint is left, and
  // std::invalid_argument if `data` is not the run's data (by the checksum of its tokens).
  static Trainer resume(const std::string& directory, TokenDataset data, std::vector<std::string>* refused = nullptr);

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkv
