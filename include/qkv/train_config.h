// SPDX-License-Identifier: Apache-2.0
// Settings of a training run, and its learning rate schedule.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "qkv/optimizer.h"
#include "qkv/tensor.h"

namespace qkv {

enum class Schedule : std::uint8_t { cosine, linear, wsd, constant };
std::string_view to_string(Schedule schedule) noexcept;
Schedule schedule_from(std::string_view name);  // throws std::invalid_argument, listing the names

struct TrainConfig : OptimizerOptions {
  std::int64_t steps = 2000;       // optimizer steps of the whole run
  std::int64_t batch_size = 16;    // sequences per micro-batch
  std::int64_t grad_accum = 1;     // micro-batches per step
  double learning_rate = 2e-3;     // peak
  double min_lr = -1;              // final, at most the peak; -1: a tenth of it
  std::int64_t warmup_steps = -1;  // -1: a twentieth of the steps, at most 500
  std::int64_t decay_steps = 0;    // where the schedule ends; 0: steps
  Schedule schedule = Schedule::cosine;
  double grad_clip = 1.0;  // clip the global gradient norm to this; 0: off
  std::int64_t eval_interval = 250;
  std::int64_t eval_iters = 20;        // batches per evaluation, evenly spaced over the validation split; 0: all of it
  std::int64_t sample_interval = 500;  // 0: no samples
  std::int64_t log_interval = 10;
  std::int64_t checkpoint_interval = 250;
  std::int64_t keep_checkpoints = 3;  // newest ones to keep; older ones are removed
  std::int64_t max_bad_steps = 10;    // consecutive steps with NaN or inf that end the run
  std::uint64_t seed = 1337;
  DType compute_dtype = DType::f32;  // of matmuls and attention, f32 or bf16: Model::set_compute_dtype
  bool recompute = false;            // Model::set_recompute; results are bit-identical
  double dropout = 0;                // ModelDropout::p
  std::int64_t window = 0;           // tokens per training sequence, at most ctx_len; 0: ctx_len

  bool operator==(const TrainConfig&) const = default;
};

// Throws std::invalid_argument for the first invalid value.
void validate(const TrainConfig& config);

// Learning rate of step 1 ... steps; from the schedule's end on it is min_lr (constant: learning_rate).
//   warm-up   learning_rate * step / (warmup_steps + 1)
//   cosine    min + (max - min) * (1 + cos(pi * t)) / 2      t = (step - warmup) / (decay_steps - warmup)
//   linear    max + (min - max) * t
//   wsd       max until the last fifth of decay_steps, then linear to min        (warm-up, stable, decay)
double learning_rate_at(const TrainConfig& config, std::int64_t step);
// The highest learning rate of step `step` and all later ones.
double highest_rate_from(const TrainConfig& config, std::int64_t step);

// For a run that was planned as `planned`, has done `steps_done` steps and goes on with `config`. If another number of
// steps, by itself, would make the learning rate rise above what was planned from there on, the schedule keeps its
// planned warm-up and end in `config`, and later steps have its last rate. Returns whether it does.
bool keep_planned_schedule(const TrainConfig& planned, std::int64_t steps_done, TrainConfig& config);
// Whether `config` makes the learning rate of the steps after `steps_done` rise above what was planned from there on.
bool rate_rises(const TrainConfig& planned, std::int64_t steps_done, const TrainConfig& config);

// Calls visit(name, member) for each member, in order: the single list used by checkpoints and Python.
template <class Config, class Visit>
void for_each_member(Config& c, const Visit& visit) requires std::is_same_v<std::remove_const_t<Config>, TrainConfig> {
  visit("steps", c.steps);
  visit("batch_size", c.batch_size);
  visit("grad_accum", c.grad_accum);
  visit("learning_rate", c.learning_rate);
  visit("min_lr", c.min_lr);
  visit("warmup_steps", c.warmup_steps);
  visit("decay_steps", c.decay_steps);
  visit("schedule", c.schedule);
  visit("optimizer", c.optimizer);
  visit("weight_decay", c.weight_decay);
  visit("beta1", c.beta1);
  visit("beta2", c.beta2);
  visit("eps", c.eps);
  visit("muon_momentum", c.muon_momentum);
  visit("grad_clip", c.grad_clip);
  visit("eval_interval", c.eval_interval);
  visit("eval_iters", c.eval_iters);
  visit("sample_interval", c.sample_interval);
  visit("log_interval", c.log_interval);
  visit("checkpoint_interval", c.checkpoint_interval);
  visit("keep_checkpoints", c.keep_checkpoints);
  visit("max_bad_steps", c.max_bad_steps);
  visit("seed", c.seed);
  visit("operands", c.compute_dtype);
  visit("recompute", c.recompute);
  visit("dropout", c.dropout);
  visit("window", c.window);
}

}  // namespace qkv
