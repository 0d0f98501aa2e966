// SPDX-License-Identifier: Apache-2.0
#include "model/lane_tree.h"

#include <algorithm>

namespace qkv {

void LaneTree::merge(std::vector<SumStep>& steps) {
  const int top = slots_in_use() - 1;
  steps.push_back({top - 1, top, false, 0});
  first_lanes_.pop_back();
}

// Closes a complete lane by merging partial sums that are siblings in the tree. Lanes without sequences add nothing.
void LaneTree::close(std::int64_t lane, std::vector<SumStep>& steps) {
  for (std::int64_t width = 1; width < kLanes && (lane / width) % 2 == 1; width *= 2) {
    const std::int64_t sibling = lane / width * width - width;  // the sibling's first lane
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

PassSlots LaneTree::pass(std::int64_t count) {
  PassSlots pass;
  const int before = slots_in_use();
  pass.steps = take(count);
  for (const SumStep& step : pass.steps) pass.slots = std::max(pass.slots, step.to + 1);
  pass.whole = before > 1 || slots_in_use() > 1;
  return pass;
}

StepSlots slots_of_step(std::int64_t batch_size, std::int64_t grad_accum, std::int64_t group) {
  if (batch_size * grad_accum > 1024) return {kSumSlots, 0};  // large lanes: 0-3, 4-5, 6 and 7 at the end
  LaneTree lanes;
  lanes.begin(batch_size * grad_accum);
  int whole = 1, all = 1;
  for (std::int64_t micro = 0; micro < grad_accum; ++micro)
    for (std::int64_t b = 0; b < batch_size; b += group) {
      const PassSlots pass = lanes.pass(std::min(group, batch_size - b));
      all = std::max(all, pass.slots);
      if (pass.whole) whole = std::max(whole, pass.slots);
    }
  return {whole, all - whole};
}

}  // namespace qkv
