// SPDX-License-Identifier: Apache-2.0
// The order in which the leaves of a step, one a sequence, are summed: lanes of contiguous sequences, then a binary
// tree of lanes. See qkv/gradient_sum.h. Only the bookkeeping lives here; what is summed does not matter to it.
#pragma once

#include <cstdint>
#include <vector>

namespace qkv {

inline constexpr std::int64_t kLanes = 8;
inline constexpr int kSumSlots = 4;  // partial sums that exist at once

// One action on partial sums, which live in slots.
struct SumStep {
  int to;                 // slot
  int from;               // slot that is added to `to` and is then free; -1: the leaf of `sequence` goes to `to`
  bool fresh;             // a leaf: overwrites what stands in `to`, instead of being added to it
  std::int64_t sequence;  // of a leaf: its number in the call of take()
};

class LaneTree {
 public:
  void begin(std::int64_t sequences) {
    total_ = sequences;
    next_ = 0;
    first_lanes_.clear();
  }
  std::int64_t missing() const noexcept { return total_ - next_; }
  std::int64_t taken() const noexcept { return next_; }
  int slots_in_use() const noexcept { return static_cast<int>(first_lanes_.size()); }

  // The steps that the next `count` sequences cause; count <= missing(). After the last one the sum is in slot 0.
  std::vector<SumStep> take(std::int64_t count);

 private:
  std::int64_t lane_begin(std::int64_t lane) const noexcept { return lane * total_ / kLanes; }
  void close(std::int64_t lane, std::vector<SumStep>& steps);
  void merge(std::vector<SumStep>& steps);

  std::int64_t total_ = 0, next_ = 0;
  std::vector<std::int64_t> first_lanes_;  // [slots in use]: the first lane that each slot's partial sum covers
};

}  // namespace qkv
