// SPDX-License-Identifier: Apache-2.0
#include "train/training_step.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

namespace qkv {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

StepSize size_of(std::span<const Batch> micro_batches) {
  StepSize size;
  for (const Batch& batch : micro_batches) {
    size.sequences += batch.batch;
    for (std::int64_t b = 0; b < batch.batch; ++b) {
      const std::int64_t length = batch.lengths.empty() ? batch.ctx : batch.lengths[static_cast<std::size_t>(b)];
      for (std::int64_t t = 0; t < std::min(length, batch.ctx); ++t)
        size.targets += batch.targets[static_cast<std::size_t>(b * batch.ctx + t)] >= 0;
    }
  }
  return size;
}

}  // namespace

void use_config(const TrainConfig& config, Model& model) {
  if (model.dtype() == DType::f32) model.set_compute_dtype(config.compute_dtype);
  model.set_recompute(config.recompute);
}

TrainingStep::TrainingStep(Model& model, const TrainConfig& config, std::optional<LoraAdapters> adapters,
                           std::unique_ptr<Communicator> communicator)
    : model_(model),
      lora_(adapters ? std::optional<LoraTraining>(std::in_place, model, std::move(*adapters)) : std::nullopt),
      optimizer_(lora_ ? make_optimizer(config.optimizer, adapter_infos(lora_->adapters()), model.dtype())
                       : make_optimizer(config.optimizer, model)),
      sum_(lora_ ? GradientSum(model, adapted_parameters(lora_->adapters(), model.infos().size()))
                 : GradientSum(model)),
      communicator_(std::move(communicator)) {}

LaneRange TrainingStep::lanes() const { return lanes_of(communicator_->rank(), communicator_->size()); }

const std::vector<Tensor>& TrainingStep::gradients() {
  const std::vector<Tensor>& gradients = sum_.finish();
  return lora_ ? lora_->project(gradients) : gradients;
}

StepReport TrainingStep::run(std::span<const Batch> micro_batches, const TrainConfig& config,
                             const StepNumbers& numbers, const std::function<bool()>& stop) {
  const Clock::time_point start = Clock::now();
  const StepSize whole = communicator_->total(size_of(micro_batches));
  StepReport report;
  report.step = numbers.step;
  report.learning_rate = learning_rate_at(config, numbers.step);
  report.tokens = whole.targets;
  if (whole.targets > 0) {
    // One scale for the whole step, so that all targets have equal weight regardless of batching.
    const double scale = 1.0 / static_cast<double>(whole.targets);
    sum_.begin(whole.sequences, lanes());
    use_config(config, model_);
    model_.set_dropout({config.dropout, config.seed, static_cast<std::uint64_t>(numbers.step)});
    for (const Batch& batch : micro_batches) {
      if (stop && &batch != micro_batches.data() && stop()) throw StepStopped();
      model_.loss_and_gradients(batch, scale, sum_);
    }
    const std::vector<double> losses = communicator_->gather(sum_.losses());
    report.loss = std::accumulate(losses.begin(), losses.end(), 0.0) * scale;
    communicator_->reduce(sum_);
    const Clock::time_point optimizer_start = Clock::now();
    const std::vector<Tensor>& gradients = this->gradients();
    report.grad_norm = global_norm(gradients);
    report.skipped = !std::isfinite(report.loss) || !std::isfinite(report.grad_norm);
    if (!report.skipped) {
      const bool clip = config.grad_clip > 0 && report.grad_norm > config.grad_clip;
      optimizer_->update(lora_ ? lora_->values() : *model_.change_parameters(), gradients, config,
                         {numbers.update, report.learning_rate, clip ? config.grad_clip / report.grad_norm : 1.0});
      if (lora_) lora_->merge(model_);
    }
    report.optimizer_seconds = seconds_since(optimizer_start);
  }
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace qkv
