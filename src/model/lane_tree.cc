// SPDX-License-Identifier: Apache-2.0
#include "model/lane_tree.h"

namespace qkv {

void LaneTree::merge(std::vector<SumStep>& steps) {
  const int top = slots_in_use() - 1;
  steps.push_back({top - 1, top, false, 0});
  first_lanes_.pop_back();
}

// A lane is complete: partial sums that are siblings in the tree become one. Lanes without sequences add nothing.
void LaneTree::close(std::int64_t lane, std::vector<SumStep>& steps) {
  for (std::int64_t width = 1; width < kLanes && (lane / width) % 2 == 1; width *= 2) {
    const std::int64_t sibling = lane / width * width - width;  // its first lane
    while (slots_in_use() > 1 && first_lanes_[first_lanes_.size() - 2] >= sibling) merge(steps);
  }
}

std::vector<SumStep> LaneTree::take(std::int64_t count) {
  std::vector<SumStep> steps;
  for (std::int64_t i = 0; i < count; ++i, ++next_) {
    std::int64_t lane = 0;
    while (lane_begin(lane + 1) <= next_) ++lane;
    const bool fresh = lane_begin(lane) == next_;
    if (fresh) first_lanes_.push_back(lane);
    steps.push_back({slots_in_use() - 1, -1, fresh, i});
    if (next_ + 1 == lane_begin(lane + 1)) close(lane, steps);
  }
  return steps;
}

}  // namespace qkv
