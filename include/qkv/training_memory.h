// SPDX-License-Identifier: Apache-2.0
// Estimates the memory of training before it is allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/lora.h"
#include "qkv/model.h"

namespace qkv {

// Shape of a training step.
struct TrainingShape {
  std::int64_t batch_size = 1;             // sequences per micro-batch
  std::int64_t grad_accum = 1;             // micro-batches per step
  std::int64_t ctx_len = 0;                // tokens per sequence; 0: the model's ctx_len
  bool bf16 = false;                       // compute dtype; else f32
  bool recompute = false;                  // Model::set_recompute
  bool saves = false;                      // background checkpoints, from a copy of weights and moments
  int threads = 0;                         // 0: num_threads()
  std::string optimizer = "adamw";         // OptimizerOptions::optimizer
  const LoraAdapters* adapters = nullptr;  // if only these are trained; must match the model
};

// Bytes by purpose, computed from the shapes of everything that an f32 training step allocates. The program, libraries
// and thread stacks are a constant, measured once. A test compares the total with the real peak.
struct TrainingMemory {
  std::int64_t weights = 0;      // parameters
  std::int64_t moments = 0;      // of the optimizer, and its workspace
  std::int64_t gradients = 0;    // and partial sums if a step is split inside the summation tree
  std::int64_t operands = 0;     // copies of matrices, packed for fast matmuls
  std::int64_t activations = 0;  // stored by the forward pass for the backward pass
  std::int64_t work = 0;         // gradients of activations, logits, kernel workspace
  std::int64_t copy = 0;         // copy for background checkpoints
  std::int64_t program = 0;
  std::int64_t total() const noexcept {
    return weights + moments + gradients + operands + activations + work + copy + program;
  }
};

// config must be resolved. Throws std::invalid_argument for sizes that overflow or are below 1, and for an unknown
// optimizer.
TrainingMemory training_memory(const ModelConfig& config, const TrainingShape& shape);

// A step with the same number of sequences that needs at most `available` bytes, changed as little as possible:
// batch_size is halved (and grad_accum doubled), then recompute is set, then ctx_len is halved, down to 16. nullopt if
// even that is too much.
std::optional<TrainingShape> training_shape_within(const ModelConfig& config, const TrainingShape& shape,
                                                   std::int64_t available);

// Total bytes this process can use without swapping or being killed: its current use plus what the machine and cgroups
// have left. 0: unknown.
std::int64_t memory_for_this_process();

}  // namespace qkv
