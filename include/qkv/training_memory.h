// SPDX-License-Identifier: Apache-2.0
// How much memory training takes, before it is taken.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "qkv/lora.h"
#include "qkv/model.h"

namespace qkv {

// What a training step is made of, beside the model.
struct TrainingShape {
  std::int64_t batch_size = 1;             // sequences of one micro-batch
  std::int64_t grad_accum = 1;             // micro-batches
  std::int64_t ctx_len = 0;                // tokens of a sequence; 0: the model's ctx_len
  bool bf16 = false;                       // operands of products; else f32
  bool recompute = false;                  // Model::set_recompute
  bool saves = false;                      // checkpoints are written beside steps, from a copy of weights and moments
  int threads = 0;                         // 0: num_threads()
  std::string optimizer = "adamw";         // OptimizerOptions::optimizer
  const LoraAdapters* adapters = nullptr;  // where only these are trained; must fit the model
};

// Bytes, by what they are for. Counted from the shapes of everything that a step of f32 training holds on to; what is
// not ours (the program, libraries, threads) is a constant measured once. Held against the real peak by a test.
struct TrainingMemory {
  std::int64_t weights = 0;      // parameters
  std::int64_t moments = 0;      // of the optimizer, and what its step works in
  std::int64_t gradients = 0;    // and partial sums of a step that is cut inside the tree of its order
  std::int64_t operands = 0;     // the copies of matrices made ready for fast products
  std::int64_t activations = 0;  // what the forward pass leaves for the backward pass
  std::int64_t work = 0;         // gradients of activations, logits, room of the kernels
  std::int64_t copy = 0;         // what a checkpoint is written from while training goes on
  std::int64_t program = 0;
  std::int64_t total() const noexcept {
    return weights + moments + gradients + operands + activations + work + copy + program;
  }
};

// config: resolved. Throws std::invalid_argument for sizes that cannot be counted or are below 1, and for an unknown
// optimizer.
TrainingMemory training_memory(const ModelConfig& config, const TrainingShape& shape);

// A step of as many sequences that takes at most `available` bytes, changed as little as possible: batch_size is halved
// (and grad_accum raised), then recompute is set, then ctx_len halved, down to 16. Nothing if even that is too much.
std::optional<TrainingShape> training_shape_within(const ModelConfig& config, const TrainingShape& shape,
                                                   std::int64_t available);

// Bytes that this process can have in all without swapping or being stopped: what it has, and what the machine and the
// control groups have left. 0 where the system does not tell.
std::int64_t memory_for_this_process();

}  // namespace qkv
