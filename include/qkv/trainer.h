// SPDX-License-Identifier: Apache-2.0
// A model in training: steps, evaluations, checkpoints.
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
  double loss = 0;        // nats a token, before the update
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;       // real targets
  double seconds = 0;            // of the whole step
  double optimiser_seconds = 0;  // of them: the gradients' norm and the optimizer
  double data_seconds = 0;       // of them: reading windows of tokens
  bool skipped = false;          // NaN or inf: nothing was changed
  double spike = 0;  // a loss past z = 6: z, its distance from the mean of up to 128 losses before, in deviations
};

struct EvalReport {
  std::int64_t step = 0;
  double loss = 0;           // nats a token
  double bits_per_byte = 0;  // loss * tokens / (bytes * ln 2), over the whole part
  std::int64_t tokens = 0;   // predicted
  bool best = false;         // the lowest loss so far
};

// A step or an evaluation that was asked to stop.
class StepStopped : public std::runtime_error {
 public:
  StepStopped() : std::runtime_error("[train] stopped before the step was done") {}
};

// Too many steps in a row had NaN or inf, or a run ended among such steps. Nothing was saved since they began: the last
// checkpoint is the last good one.
class TrainingDiverged : public std::runtime_error {
 public:
  TrainingDiverged(std::int64_t step, const std::string& what) : std::runtime_error(what), step_(step) {}
  std::int64_t step() const noexcept { return step_; }

 private:
  std::int64_t step_;
};

// A model in training. Not thread-safe; computing uses qkv::num_threads() threads inside.
class Trainer {
 public:
  // Throws std::invalid_argument if config makes no sense, the model's vocabulary is too
  // small or the training part is shorter than
  // one window and the token after it.
  Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config);
  // Trains the adapters alone; the model's own parameters stay as they are, and what is saved is the adapters
  // (docs/formats.md). Throws std::invalid_argument also if the adapters do not fit.
  Trainer(Model model, Tokenizer tokenizer, TokenDataset data, const TrainConfig& config, LoraAdapters adapters);
  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // One optimizer step on the next grad_accum * batch_size sequences, or on the given micro-batches. Every real target
  // of the step has the same weight. A step without targets changes only the count. Throws TrainingDiverged. `stop` is
  // called before each micro-batch but the first; where it returns true, StepStopped is thrown and nothing has changed.
  StepReport step(const std::function<bool()>& stop = {});
  StepReport step(std::span<const Batch> micro_batches);
  // Changes only the best loss. Needs at least two validation tokens (has_validation()). `stop` is called before each
  // batch; where it returns true, StepStopped is thrown and nothing has changed.
  EvalReport evaluate(const std::function<bool()>& stop = {});
  bool has_validation() const noexcept;

  std::int64_t steps_done() const noexcept;
  std::int64_t skipped_steps() const noexcept;       // since the run began
  std::int64_t bad_steps_in_a_row() const noexcept;  // the newest ones
  std::int64_t evaluated_step() const noexcept;      // the step of the newest evaluation; 0: none yet
  double best_loss() const noexcept;                 // of the evaluations; infinity before the first
  std::int64_t best_step() const noexcept;
  // What the best evaluation was, for a caller that could not keep the model of a better one.
  void set_best(double loss, std::int64_t step) noexcept;
  const TrainConfig& config() const noexcept;
  // From the next step on. Throws std::invalid_argument, also for another optimizer than the run began with.
  void set_config(const TrainConfig& config);
  Model& model() noexcept;                        // with its adapters, if there are any, added
  const LoraAdapters* adapters() const noexcept;  // null: a run that trains all parameters
  const Tokenizer& tokenizer() const noexcept;
  // End tokens and chat template of the model that the run began with, kept with what it saves; nothing to begin with.
  const TextFacts& text_facts() const noexcept;
  void set_text_facts(TextFacts facts);
  const TokenDataset& data() const noexcept;
  const Optimizer& optimizer() const noexcept;  // of the parameters, or of LoraAdapters::values

  // Writes the checkpoint directory/checkpoints/step-NNNNNN: a model directory with the moments, where the run stands
  // and a checksum of every file, made whole in one step and synced. The directory's own config.json, model.safetensors
  // and tokenizer.json (a model to pass on) become second names of its files, and of the checkpoints up to this step
  // the newest config().keep_checkpoints stay. docs/formats.md. Throws qkv::FileError; what was there before is then
  // still there. Refuses (std::runtime_error) to save weights with NaN or inf.
  void save(const std::string& directory);
  // The same on a thread of its own, from a copy of weights and moments, while training goes on; what save() throws,
  // finish_saving() does. Waits for a save that is still going on.
  void start_saving(const std::string& directory);
  // The step of the save that was begun, once it is done; waits for it if `wait`. Nothing if none was begun or it is
  // still going on. Throws what save() throws; there is then no save going on any more.
  std::optional<std::int64_t> finish_saving(bool wait);
  // Takes up where the newest sound checkpoint stands; tokens from `data`. One that is damaged (or of another version)
  // is passed over, and `refused` gains a line that names the file and what is wrong with it. The directory's own model
  // becomes that of the checkpoint again, if it can be written. Throws qkv::FileError if no checkpoint is left.
  // Throws std::invalid_argument if `data` is not what the run went through (by the checksum of its tokens).
  static Trainer resume(const std::string& directory, TokenDataset data, std::vector<std::string>* refused = nullptr);

 private:
  struct Impl;
  explicit Trainer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkv
