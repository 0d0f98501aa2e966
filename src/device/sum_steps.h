// SPDX-License-Identifier: Apache-2.0
// Gradient sums in a fixed order: operations on partial sums for some of a step's sequences. model/lane_tree.h chooses
// the operations; devices execute them.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "qkv/tensor.h"

namespace qkv {

inline constexpr int kSumSlots = 4;  // number of partial sums that exist at once

// One operation on the partial sums, which are stored in slots.
struct SumStep {
  int to;                 // slot
  int from;               // slot added to `to` and then freed; -1: the leaf of `sequence` goes to `to`
  bool fresh;             // for a leaf: overwrites `to` instead of being added to it
  std::int64_t sequence;  // for a leaf: its index among the current sequences
};

// One parameter's gradient in each slot. Null slot 0: not requested. Null past slot 0: the partial sum exists only
// within one operation, in device memory.
using SlotPointers = std::array<void*, kSumSlots>;

}  // namespace qkv
