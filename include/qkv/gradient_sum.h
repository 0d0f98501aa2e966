// SPDX-License-Identifier: Apache-2.0
// The gradient of one optimizer step as a sum with a fixed order, however the step is cut into batches or spread over
// processes.
//
// A sequence gives one leaf. The step's sequences fall into 8 lanes, contiguous ranges of (almost) equal length; the
// leaves of a lane are added in order, and the lanes as a fixed binary tree. So a batch of 4 gives the bits of 4 times
// one sequence, and 1, 2, 4 or 8 processes, each with its share of the lanes, give the bits of one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

class Model;

inline constexpr std::int64_t kLanes = 8;

// Lanes first ... first + count - 1 of a step, a subtree of their sum: count is 1, 2, 4 or 8, and first a multiple.
struct LaneRange {
  std::int64_t first = 0, count = kLanes;

  // Of a step of `sequences`: the first one in these lanes, and one past the last.
  std::int64_t begin(std::int64_t sequences) const noexcept { return first * sequences / kLanes; }
  std::int64_t end(std::int64_t sequences) const noexcept { return (first + count) * sequences / kLanes; }
  bool operator==(const LaneRange&) const = default;
};

// Those of process `rank` of `size`. Throws std::invalid_argument unless size is 1, 2, 4 or 8 and rank below it.
LaneRange lanes_of(int rank, int size);

// Not thread-safe. Memory: one gradient of the model, and up to three more where a step is cut inside the tree.
class GradientSum {
 public:
  explicit GradientSum(const Model& model);
  // The same for some of the parameters: wanted[i] of the model's parameter i (as many as there are, or
  // std::invalid_argument). The others take neither memory nor work, and their tensors in finish() are empty.
  GradientSum(const Model& model, std::vector<bool> wanted);
  ~GradientSum();
  GradientSum(GradientSum&&) noexcept;
  GradientSum& operator=(GradientSum&&) noexcept;

  // Starts the sum of a step of `sequences` > 0 sequences; Model::loss_and_gradients adds those in `lanes`, in order.
  // Throws std::invalid_argument.
  void begin(std::int64_t sequences, const LaneRange& lanes = {});

  // The loss of each sequence that was added, in nats, in order.
  const std::vector<double>& losses() const noexcept;

  // The sum over some lanes, once their sequences have been added.
  struct Partial {
    LaneRange lanes;
    bool empty;  // no sequence is in these lanes: the sum passes over them, and adds no zeros (-0 + 0 is +0)
    // One per parameter that is wanted; where the head is tied, last a second one for the token embedding, what it gets
    // as the head: the two sums are added when both are complete.
    std::vector<Tensor*> tensors;
  };
  // Memory is taken also where it is empty. Throws std::invalid_argument if sequences are missing.
  Partial partial();
  // Adds the sum over the lanes beside: those that make the next larger subtree with the lanes here, from another
  // GradientSum for the same parameters, or as another process has sent it. Throws std::invalid_argument.
  void add(const Partial& sibling);

  // The sum over all lanes, in the flat order of the parameters; valid until begin(). Throws std::invalid_argument if
  // sequences or lanes are missing.
  const std::vector<Tensor>& finish();

  struct Impl;

 private:
  friend class Model;
  std::unique_ptr<Impl> impl_;
};

}  // namespace qkv
