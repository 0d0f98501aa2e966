// SPDX-License-Identifier: Apache-2.0
#include "train_memory.h"

#include <fmt/format.h>

#include <stdexcept>

#include "qkv/training_memory.h"

namespace qkv::cli {
namespace {

std::string gigabytes(std::int64_t bytes) { return fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9); }

std::string options_of(const TrainingShape& shape, const TrainingShape& asked, const char* length_option) {
  std::string text = fmt::format("--batch-size {} --grad-accum {}", shape.batch_size, shape.grad_accum);
  if (shape.recompute && !asked.recompute) text += " --recompute";
  if (shape.ctx_len != asked.ctx_len) text += fmt::format(" {} {}", length_option, shape.ctx_len);
  return text;
}

TrainingShape shape_of(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters) {
  TrainingShape shape;
  shape.batch_size = config.batch_size;
  shape.grad_accum = config.grad_accum;
  shape.ctx_len = config.window > 0 ? config.window : model.ctx_len;
  shape.bf16 = config.compute_dtype == DType::bf16;
  shape.recompute = config.recompute;
  shape.saves = config.checkpoint_interval > 0 && config.checkpoint_interval < config.steps;
  shape.optimizer = config.optimizer;
  shape.adapters = adapters;
  return shape;
}

}  // namespace

std::int64_t adapted_elements(const ModelConfig& model, const LoraAdapters& adapters) {
  const std::vector<ParameterInfo> infos = parameter_infos(model);
  std::int64_t count = 0;
  for (const LoraModule& module : adapters.modules)
    for (const std::size_t p : module.parameters) count += element_count(infos[p].shape);
  return count;
}

std::string memory_text(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters) {
  const TrainingMemory m = training_memory(model, shape_of(model, config, adapters));
  return fmt::format(
      "memory per step: {} (weights and optimizer {}, gradients {}, matmul copies {}, activations {}, checkpoint "
      "buffer "
      "{})",
      gigabytes(m.total()), gigabytes(m.weights + m.moments), gigabytes(m.gradients), gigabytes(m.operands),
      gigabytes(m.activations + m.work), gigabytes(m.copy));
}

void check_memory(const ModelConfig& model, const TrainConfig& config, const LoraAdapters* adapters,
                  const char* length_option) {
  const TrainingShape asked = shape_of(model, config, adapters);
  const TrainingMemory needed = training_memory(model, asked);
  const std::int64_t available = memory_for_this_process();
  if (available == 0 || needed.total() <= available) return;
  const std::int64_t model_only = needed.weights + needed.moments + needed.gradients + needed.operands;
  std::string text = fmt::format(
      "not enough memory: a step needs {} ({} for the model, {} for {} x {} tokens), but only {} is available; ",
      gigabytes(needed.total()), gigabytes(model_only), gigabytes(needed.activations + needed.work), asked.batch_size,
      asked.ctx_len, gigabytes(available));
  const auto fitting = training_shape_within(model, asked, available);
  if (fitting)
    text += fmt::format("{} would fit in {}", options_of(*fitting, asked, length_option),
                        gigabytes(training_memory(model, *fitting).total()));
  else
    text += "no batch fits; use a smaller model or fewer sequences";
  throw std::runtime_error(text + " (--no-memory-check skips this check)");
}

}  // namespace qkv::cli
