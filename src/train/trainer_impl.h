// SPDX-License-Identifier: Apache-2.0
// The state of a Trainer, shared by trainer.cc and checkpoint.cc.
#pragma once

#include <optional>
#include <utility>

#include "qkv/trainer.h"
#include "train/checkpoint_writer.h"
#include "train/run_state.h"
#include "train/training_step.h"

namespace qkv {

struct Trainer::Impl {
  Impl(Model m, Tokenizer t, TokenDataset d, const TrainConfig& c, std::optional<LoraAdapters> adapters = {})
      : model(std::move(m)),
        tokenizer(std::move(t)),
        data(std::move(d)),
        config(c),
        training(model, config, std::move(adapters)) {
    state.data_checksum = data.checksum();
  }

  StepReport step(std::span<const Batch> micro_batches, const std::function<bool()>& stop);
  std::int64_t window() const { return config.window > 0 ? config.window : model.config().ctx_len; }
  CheckpointContent content() const {
    return {model, training.lora(), training.optimizer().state(), tokenizer, facts, config, state};
  }

  Model model;
  Tokenizer tokenizer;
  TextFacts facts;
  TokenDataset data;
  TrainConfig config;
  TrainingStep training;
  CheckpointWriter checkpoints;
  RunState state;
  std::int64_t bad_in_a_row = 0;      // not saved: there are no saves while it is nonzero
  std::vector<std::int32_t> tokens;   // [sequences of a step, ctx_len]
  std::vector<std::int32_t> targets;  // [sequences of a step, ctx_len]
};

}  // namespace qkv
