// SPDX-License-Identifier: Apache-2.0
// The gradient of one optimiser step as a sum with a fixed order, however the step is cut into batches.
//
// A sequence gives one leaf. The step's sequences fall into 8 lanes, contiguous ranges of (almost) equal length; the
// leaves of a lane are added in order, and the lanes as a fixed binary tree. So a batch of 4 gives the bits of 4 times
// one sequence, and 1, 2, 4 or 8 processes that take whole lanes can give the bits of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

class Model;

// Not thread-safe. Memory: one gradient of the model, and up to three more where a step is cut inside the tree.
class GradientSum {
 public:
  explicit GradientSum(const Model& model);
  // The same for some parameters alone: wanted[i] of the model's parameter i (as many as there are, or
  // std::invalid_argument). The others take neither memory nor work, and their tensors in finish() are empty.
  GradientSum(const Model& model, std::vector<bool> wanted);
  ~GradientSum();
  GradientSum(GradientSum&&) noexcept;
  GradientSum& operator=(GradientSum&&) noexcept;

  // Starts the sum of a step of `sequences` > 0 sequences; Model::loss_and_gradients adds them, in order.
  void begin(std::int64_t sequences);
  // The sum, once all sequences have been added, in the flat order of the parameters; valid until begin(). Throws
  // std::invalid_argument if some are missing.
  const std::vector<Tensor>& finish();

  struct Impl;

 private:
  friend class Model;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkv
