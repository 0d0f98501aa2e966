// SPDX-License-Identifier: Apache-2.0
// Growing a model: AdamW, learning-rate schedules, accumulation, evaluation, checkpoints.
//
// A run is a function of its configuration and data alone: the same bits at any thread count, and the same bits whether
// it ran through or was stopped and resumed any number of times.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/dataset.h"
#include "qkv/lora.h"
#include "qkv/model.h"
#include "qkv/model_file.h"
#include "qkv/tokenizer.h"

namespace qkv {

enum class Schedule : std::uint8_t { cosine, linear, wsd, constant };
std::string_view to_string(Schedule schedule) noexcept;
Schedule schedule_from(std::string_view name);  // throws std::invalid_argument that lists the names

struct TrainConfig {
  std::int64_t steps = 2000;       // optimiser steps of the whole run
  std::int64_t batch_size = 16;    // sequences of one micro-batch
  std::int64_t grad_accum = 1;     // micro-batches of one step
  double learning_rate = 2e-3;     // the highest one
  double min_lr = -1;              // the last one; -1: a tenth of the highest
  std::int64_t warmup_steps = -1;  // -1: a twentieth of the steps, at most 500
  std::int64_t decay_steps = 0;    // where the schedule ends; 0: steps
  Schedule schedule = Schedule::cosine;
  double weight_decay = 0.1;  // matrices only
  double beta1 = 0.9;
  double beta2 = 0.99;
  double eps = 1e-8;
  double grad_clip = 1.0;  // the largest norm of all gradients together; 0: no limit
  std::int64_t eval_interval = 250;
  std::int64_t eval_iters = 20;  // batches of one evaluation, spread evenly over the validation part; 0: all of it
  std::int64_t sample_interval = 500;  // 0: no samples
  std::int64_t log_interval = 10;
  std::int64_t checkpoint_interval = 250;
  std::int64_t keep_checkpoints = 3;  // the newest ones; older ones are removed
  std::int64_t max_bad_steps = 10;    // steps in a row with NaN or inf that end the run
  std::uint64_t seed = 1337;
  DType operands = DType::f32;  // of products and attention, f32 or bf16: Model::set_operands
  bool recompute = false;       // Model::set_recompute; changes no bit
  double dropout = 0;           // ModelDropout::p
  std::int64_t window = 0;      // tokens of a training sequence, at most ctx_len; 0: ctx_len

  bool operator==(const TrainConfig&) const = default;
};

// Throws std::invalid_argument with the first value that makes no sense.
void validate(const TrainConfig& config);

// The learning rate of step 1 ... steps; at and past the schedule's end it is min_lr (constant: learning_rate).
//   warm-up   learning_rate * step / (warmup_steps + 1)
//   cosine    min + (max - min) * (1 + cos(pi * t)) / 2      t = (step - warmup) / (decay_steps - warmup)
//   linear    max + (min - max) * t
//   wsd       max until the last fifth of decay_steps, then linear to min        (warm-up, stable, decay)
double learning_rate_at(const TrainConfig& config, std::int64_t step);

// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), with bias correction:
//   m = beta1 m + (1 - beta1) g        v = beta2 v + (1 - beta2) g^2
//   p = p - lr * weight_decay * p - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
// The same bits at any thread count. Not thread-safe.
class AdamW {
 public:
  AdamW() = default;
  explicit AdamW(const Model& model);
  explicit AdamW(const std::vector<Tensor>& parameters);  // all f32 or all f64

  // Step `step` (from 1) of the model, gradients (in the flat order) multiplied by gradient_scale. Allocates nothing.
  void update(Model& model, const std::vector<Tensor>& gradients, const TrainConfig& config, double learning_rate,
              double gradient_scale, std::int64_t step);
  // The same of parameters that all decay; gradients are shaped like them.
  void update(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const TrainConfig& config,
              double learning_rate, double gradient_scale, std::int64_t step);

  std::vector<Tensor>& first_moments() noexcept { return m_; }  // [i] as the model's parameter i
  std::vector<Tensor>& second_moments() noexcept { return v_; }
  const std::vector<Tensor>& first_moments() const noexcept { return m_; }
  const std::vector<Tensor>& second_moments() const noexcept { return v_; }

 private:
  void check(std::size_t gradients, std::size_t parameters) const;
  std::vector<Tensor> m_, v_;
};

// The norm of all tensors as one vector, summed in double in a fixed order. f32 or f64.
double global_norm(const std::vector<Tensor>& tensors);

struct StepReport {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // nats a token, before the update
  double grad_norm = 0;   // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;       // real targets
  double seconds = 0;            // of the whole step
  double optimiser_seconds = 0;  // of them: the gradients' norm and AdamW
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

  // One optimiser step on the next grad_accum * batch_size sequences, or on the given micro-batches. Every real target
  // of the step weighs alike. A step without targets changes nothing but the count. Throws TrainingDiverged.
  StepReport step();
  StepReport step(std::span<const Batch> micro_batches);
  // Changes nothing but the best loss. Needs at least two validation tokens (has_validation()).
  EvalReport evaluate();
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
  void set_config(const TrainConfig& config);     // from the next step on; throws std::invalid_argument
  Model& model() noexcept;                        // with its adapters, if there are any, added
  const LoraAdapters* adapters() const noexcept;  // null: a run that trains all parameters
  const Tokenizer& tokenizer() const noexcept;
  // End tokens and chat template of the model that the run began with, kept with what it saves; nothing to begin with.
  const TextFacts& text_facts() const noexcept;
  void set_text_facts(TextFacts facts);
  const TokenDataset& data() const noexcept;
  const AdamW& optimizer() const noexcept;  // its moments: of the parameters, or of LoraAdapters::values

  // Writes the checkpoint directory/checkpoints/step-NNNNNN: a model directory with the moments, where the run stands
  // and a checksum of every file, made whole in one step and synced. The directory's own config.json, model.safetensors
  // and tokenizer.json (a model to pass on) become second names of its files, and of the checkpoints up to this step
  // the newest config().keep_checkpoints stay. docs/formats.md. Throws qkv::FileError; what was there before is then
  // still there. Refuses (std::runtime_error) to save weights with NaN or inf.
  void save(const std::string& directory);
  // The same on a thread of its own, from a copy of weights and moments, while training goes on; what save() throws,
  // finish_saving() does. Waits for a save that is still going on.
  void begin_saving(const std::string& directory);
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
  std::function<bool()> stop_requested;  // asked between steps; interrupt.h has the one of Ctrl-C
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
