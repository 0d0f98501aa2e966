// SPDX-License-Identifier: Apache-2.0
// One training step, shared by qkv train, C and Python: gradients of the step's sequences, their sum over all
// processes, clipping, the optimizer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "qkv/optimizer.h"
#include "qkv/trainer.h"
#include "train/communicator.h"
#include "train/lora_training.h"

namespace qkv {

// Position of a step within its run.
struct StepNumbers {
  std::int64_t step = 1;    // from 1: for the schedule and dropout
  std::int64_t update = 1;  // from 1, counting only steps that update parameters: for the optimizer
};

class TrainingStep {
 public:
  // Trains the model's parameters or, given adapters, only those. The model must outlive it.
  TrainingStep(Model& model, const TrainConfig& config, std::optional<LoraAdapters> adapters = {},
               std::unique_ptr<Communicator> communicator = std::make_unique<OneProcess>());

  // This process's lanes in every step.
  LaneRange lanes() const;

  // micro_batches: this process's sequences of the step, in order. All non-padding targets of the step have equal
  // weight. Nothing changes if the step has no targets, if loss or gradients are not finite (`skipped`), or if `stop`
  // returns true before a micro-batch other than the first (StepStopped).
  StepReport run(std::span<const Batch> micro_batches, const TrainConfig& config, const StepNumbers& numbers,
                 const std::function<bool()>& stop = {});

  Optimizer& optimizer() noexcept { return *optimizer_; }
  const Optimizer& optimizer() const noexcept { return *optimizer_; }
  LoraTraining* lora() noexcept { return lora_ ? &*lora_ : nullptr; }
  const LoraTraining* lora() const noexcept { return lora_ ? &*lora_ : nullptr; }

 private:
  const std::vector<Tensor>& gradients();

  Model& model_;
  std::optional<LoraTraining> lora_;
  std::unique_ptr<Optimizer> optimizer_;
  GradientSum sum_;
  std::unique_ptr<Communicator> communicator_;
};

// Applies the configuration's compute settings to the model.
void use_config(const TrainConfig& config, Model& model);

}  // namespace qkv
