// SPDX-License-Identifier: Apache-2.0
// Sums of gradients in a fixed order: the actions on partial sums that some sequences of a step cause. Which actions,
// model/lane_tree.h decides; devices carry them out.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "qkv/tensor.h"

namespace qkv {

inline constexpr int kSumSlots = 4;  // partial sums that exist at once

// One action on partial sums, which are kept in slots.
struct SumStep {
  int to;                 // slot
  int from;               // slot that is added to `to` and is then free; -1: the leaf of `sequence` goes to `to`
  bool fresh;             // a leaf: overwrites what `to` holds, instead of being added to it
  std::int64_t sequence;  // of a leaf: its number among the sequences at hand
};

// One parameter's gradient in each slot. A null slot 0: not wanted. Null past slot 0: the partial sum lives within one
// operation, in memory of the device.
using SlotPointers = std::array<void*, kSumSlots>;

}  // namespace qkv
