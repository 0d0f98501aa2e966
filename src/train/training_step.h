// SPDX-License-Identifier: Apache-2.0
// One step of training, the same for qkv train, C and Python: gradients of the step's sequences, their sum over all
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

// Where a step is in its run.
struct StepNumbers {
  std::int64_t step = 1;    // from 1: of the schedule and of dropout
  std::int64_t update = 1;  // from 1, counting only steps that change something: of the optimizer
};

class TrainingStep {
 public:
  // Trains the model's parameters or, given adapters, only these. The model must outlive it.
  TrainingStep(Model& model, const TrainConfig& config, std::optional<LoraAdapters> adapters = {},
               std::unique_ptr<Communicator> communicator = std::make_unique<OneProcess>());

  // This process's lanes of every step.
  LaneRange lanes() const;

  // micro_batches: this process's sequences of the step, in order. Every real target of the step weighs alike. Nothing
  // is changed if the step has no targets, or (`skipped`) if loss or gradients are not finite, or if `stop` returns
  // true before a micro-batch other than the first (StepStopped).
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

// Tells the model how to compute, as the configuration says.
void use_config(const TrainConfig& config, Model& model);

}  // namespace qkv
