// SPDX-License-Identifier: Apache-2.0
// The order in which the leaves of a step, one per sequence, are summed: lanes of contiguous sequences, then a binary
// tree of lanes. See qkv/gradient_sum.h. Only the bookkeeping lives here; what is summed does not matter to it.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sum_steps.h"
#include "qkv/gradient_sum.h"

namespace qkv {

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

 private:
  std::int64_t lane_begin(std::int64_t lane) const noexcept { return lane * total_ / kLanes; }
  void close(std::int64_t lane, std::vector<SumStep>& steps);
  void merge(std::vector<SumStep>& steps);

  std::int64_t total_ = 0, next_ = 0;
  LaneRange lanes_;
  std::vector<std::int64_t> first_lanes_;  // [slots in use]: the first lane that each slot's partial sum covers
};

}  // namespace qkv
