// SPDX-License-Identifier: Apache-2.0
// The order in which the leaves of a step, one per sequence, are summed: lanes of contiguous sequences, then a binary
// tree of lanes. See qkv/gradient_sum.h. Only the bookkeeping lives here; what is summed does not matter to it.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sum_steps.h"
#include "qkv/gradient_sum.h"

namespace qkv {

// What one pass over some sequences does.
struct PassSlots {
  std::vector<SumStep> steps;
  int slots = 1;       // it writes to slots 0 ... slots - 1
  bool whole = false;  // partial sums past slot 0 last longer than the pass, so they are whole gradients; else matrices
                       // of layers get theirs piece by piece, in memory of the task at hand
};

class LaneTree {
 public:
  // The sequences of a step of `sequences` that are in `lanes`.
  void begin(std::int64_t sequences, const LaneRange& lanes = {}) {
    total_ = sequences;
    lanes_ = lanes;
    next_ = lanes.begin(sequences);
    first_lanes_.clear();
  }
  const LaneRange& lanes() const noexcept { return lanes_; }
  std::int64_t missing() const noexcept { return lanes_.end(total_) - next_; }
  // The number of the next sequence, in the step.
  std::int64_t next() const noexcept { return next_; }
  int slots_in_use() const noexcept { return static_cast<int>(first_lanes_.size()); }

  // The steps that the next `count` sequences cause; count <= missing(). After the last one the sum is in slot
  // 0, and no slot is in use if there was none.
  std::vector<SumStep> take(std::int64_t count);
  PassSlots pass(std::int64_t count);  // takes them

 private:
  std::int64_t lane_begin(std::int64_t lane) const noexcept { return lane * total_ / kLanes; }
  void close(std::int64_t lane, std::vector<SumStep>& steps);
  void merge(std::vector<SumStep>& steps);

  std::int64_t total_ = 0, next_ = 0;
  LaneRange lanes_;
  std::vector<std::int64_t> first_lanes_;  // [slots in use]: the first lane that each slot's partial sum covers
};

// The slots that a step needs, beside each other: those with a whole gradient, and more without layers' matrices.
struct StepSlots {
  std::int64_t whole = 1, partial = 0;
};
// Of grad_accum batches of batch_size sequences, at most `group` of which are one pass.
StepSlots slots_of_step(std::int64_t batch_size, std::int64_t grad_accum, std::int64_t group);

}  // namespace qkv
