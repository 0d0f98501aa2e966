// SPDX-License-Identifier: Apache-2.0
// The order in which the leaves of a step, one per sequence, are summed: lanes of contiguous sequences, then a binary
// tree of lanes. See qkv/gradient_sum.h. Bookkeeping only; it does not depend on the values summed.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sum_steps.h"
#include "qkv/gradient_sum.h"

namespace qkv {

// Sum steps and slots of one pass.
struct PassSlots {
  std::vector<SumStep> steps;
  int slots = 1;       // the pass writes to slots 0 ... slots - 1
  bool whole = false;  // partial sums past slot 0 outlive the pass, so they are whole gradients; otherwise layer
                       // matrices are summed piecewise in per-task memory
};

class LaneTree {
 public:
  // Starts a step of `sequences` sequences, of which those in `lanes` are added here.
  void begin(std::int64_t sequences, const LaneRange& lanes = {}) {
    total_ = sequences;
    lanes_ = lanes;
    next_ = lanes.begin(sequences);
    first_lanes_.clear();
  }
  const LaneRange& lanes() const noexcept { return lanes_; }
  std::int64_t missing() const noexcept { return lanes_.end(total_) - next_; }
  // Index of the next sequence within the step.
  std::int64_t next() const noexcept { return next_; }
  int slots_in_use() const noexcept { return static_cast<int>(first_lanes_.size()); }

  // The sum steps for the next `count` sequences; count <= missing(). After the last one the sum is in slot 0; no slot
  // is in use if there were no sequences.
  std::vector<SumStep> take(std::int64_t count);
  PassSlots pass(std::int64_t count);  // calls take()

 private:
  std::int64_t lane_begin(std::int64_t lane) const noexcept { return lane * total_ / kLanes; }
  void close(std::int64_t lane, std::vector<SumStep>& steps);
  void merge(std::vector<SumStep>& steps);

  std::int64_t total_ = 0, next_ = 0;
  LaneRange lanes_;
  std::vector<std::int64_t> first_lanes_;  // [slots in use]: first lane of each slot's partial sum
};

// Slots needed by a step: those with whole gradients, and additional ones without layer matrices.
struct StepSlots {
  std::int64_t whole = 1, partial = 0;
};
// For grad_accum batches of batch_size sequences, at most `group` sequences per pass.
StepSlots slots_of_step(std::int64_t batch_size, std::int64_t grad_accum, std::int64_t group);

}  // namespace qkv
