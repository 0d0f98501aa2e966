// SPDX-License-Identifier: Apache-2.0
// What a Trainer holds, shared by the step (trainer.cc) and the files (checkpoint.cc).
#pragma once

#include <future>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "qkv/model_file.h"
#include "qkv/train.h"
#include "train/checkpoint_directory.h"
#include "train/lora_training.h"

namespace qkv {

// Where a run stands; with weights, moments and configuration it is all that the next step depends on.
struct RunState {
  std::int64_t step = 0;           // steps done, skipped ones included
  std::int64_t updates = 0;        // the optimizer's steps
  std::int64_t next_sequence = 0;  // number of the first sequence of the next step
  std::int64_t tokens = 0;         // real targets trained on so far
  std::int64_t evaluated_step = 0;
  std::int64_t best_step = 0;
  double best_loss = std::numeric_limits<double>::infinity();
  std::vector<double> recent_losses;  // the newest ones, oldest first (loss_spike.h)
  std::uint64_t data_checksum = 0;    // of the tokens it goes through; 0: not known
};

struct Trainer::Impl {
  Impl(Model m, Tokenizer t, TokenDataset d, const TrainConfig& c)
      : model(std::move(m)),
        tokenizer(std::move(t)),
        data(std::move(d)),
        config(c),
        optimizer(make_optimizer(c.optimizer, model)),
        gradient_sum(model) {}
  Impl(Model m, Tokenizer t, TokenDataset d, const TrainConfig& c, LoraAdapters adapters)
      : model(std::move(m)),
        tokenizer(std::move(t)),
        data(std::move(d)),
        config(c),
        lora(LoraTraining(model, std::move(adapters))),
        optimizer(make_optimizer(c.optimizer, lora->infos(), model.dtype())),
        gradient_sum(model, lora->wanted(model)) {}

  Trainer snapshot() const;  // of what is saved: weights, moments, state
  void use_config();         // tells the model how to compute
  std::int64_t window() const { return config.window > 0 ? config.window : model.config().ctx_len; }
  StepReport step(std::span<const Batch> micro_batches);
  const std::vector<Tensor>& gradients() { return lora ? lora->project(gradient_sum.finish()) : gradient_sum.finish(); }
  void update(const std::vector<Tensor>& gradients, double learning_rate, double gradient_scale);
  void check_finite() const;  // what is saved; throws std::runtime_error
  FileFacts save_optimizer(const std::string& checkpoint) const;
  // lora_checkpoint.cc: the adapters go to the checkpoint, and the model they belong to beside the checkpoints, once.
  std::map<std::string, FileFacts> save_adapters(const std::string& directory, const std::string& checkpoint);
  void save_base(const std::string& directory);

  Model model;
  Tokenizer tokenizer;
  TextFacts facts;
  TokenDataset data;
  TrainConfig config;
  std::optional<LoraTraining> lora;
  std::map<std::string, FileFacts> base_files;  // of the model that adapters belong to, as the run's directory has it
  std::unique_ptr<Optimizer> optimizer;
  RunState state;
  std::int64_t saved_step = -1;      // of the checkpoint that was last written or read; -1: none
  std::future<std::int64_t> saving;  // the step of what is being saved
  std::int64_t bad_in_a_row = 0;     // not saved: nothing is saved while it is not 0
  GradientSum gradient_sum;
  std::vector<std::int32_t> tokens;   // [grad_accum * batch_size, ctx_len]
  std::vector<std::int32_t> targets;  // likewise
};

}  // namespace qkv
