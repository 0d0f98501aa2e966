// SPDX-License-Identifier: Apache-2.0
// The gradient of one optimizer step, summed in a fixed order regardless of how the step is split into batches or over
// processes.
//
// Each sequence is one leaf. The step's sequences are divided into 8 lanes, contiguous ranges of (almost) equal length.
// The leaves of a lane are added in order, and the lanes in a fixed binary tree. A batch of 4 is therefore
// bit-identical to 4 batches of one sequence, and 1, 2, 4 or 8 processes, each with its share of the lanes, are
// bit-identical to one.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

class Model;

inline constexpr std::int64_t kLanes = 8;

// Lanes first ... first + count - 1 of a step, a subtree of the sum: count is 1, 2, 4 or 8, first a multiple of it.
struct LaneRange {
  std::int64_t first = 0, count = kLanes;

  // For a step of `sequences`: the first sequence in these lanes, and one past the last.
  std::int64_t begin(std::int64_t sequences) const noexcept { return first * sequences / kLanes; }
  std::int64_t end(std::int64_t sequences) const noexcept { return (first + count) * sequences / kLanes; }
  bool operator==(const LaneRange&) const = default;
};

// The lanes of process `rank` of `size`. Throws std::invalid_argument unless size is 1, 2, 4 or 8 and rank < size.
LaneRange lanes_of(int rank, int size);

// Not thread-safe. Memory: one gradient of the model, and up to three more if a step is split inside the tree.
class GradientSum {
 public:
  explicit GradientSum(const Model& model);
  // Only for the parameters i with wanted[i]; one entry per parameter of the model, else std::invalid_argument. The
  // others take no memory or time, and their tensors in finish() are empty.
  GradientSum(const Model& model, std::vector<bool> wanted);
  ~GradientSum();
  GradientSum(GradientSum&&) noexcept;
  GradientSum& operator=(GradientSum&&) noexcept;

  // Starts the sum of a step of `sequences` > 0 sequences; Model::loss_and_gradients adds those in `lanes`, in order.
  // Throws std::invalid_argument.
  void begin(std::int64_t sequences, const LaneRange& lanes = {});

  // The loss of each added sequence, in nats, in order.
  const std::vector<double>& losses() const noexcept;

  // The sum over some lanes, after all their sequences have been added.
  struct Partial {
    LaneRange lanes;
    bool empty;  // no sequences in these lanes: they are skipped, not added as zeros (-0 + 0 is +0)
    // One per wanted parameter; with a tied head, one more at the end for the token embedding's gradient as the head.
    // The two sums are added when both are complete.
    std::vector<Tensor*> tensors;
  };
  // Allocates memory even if empty. Throws std::invalid_argument if sequences are missing.
  Partial partial();
  // Adds the sum over the sibling lanes, which together with these form the next larger subtree: from another
  // GradientSum for the same parameters, or received from another process. Throws std::invalid_argument.
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
