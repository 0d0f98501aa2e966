// SPDX-License-Identifier: Apache-2.0
// Where gradients are summed: the partial sums of a step (lane_tree.h), by role, and loops that fill them.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/parallel.h"
#include "kernels/row_kernels.h"
#include "model/lane_tree.h"
#include "model/network_parameters.h"
#include "qkv/gradient_sum.h"

namespace qkv {

// The memory behind a GradientSum.
struct GradientSum::Impl {
  ModelConfig config;  // resolved
  DType dtype;
  std::vector<ParameterInfo> infos;
  std::vector<bool> wanted;  // [parameter]
  LaneTree lanes;
  LaneRange covered;           // the lanes whose sum slot 0 has, once their sequences have been added
  bool empty = false;          // there were none
  std::vector<double> losses;  // of each sequence added
  bool finished = false;
  std::array<std::vector<Tensor>, kSumSlots> tensors;  // [slot][parameter]; past slot 0 only what is needed
  std::array<Tensor, kSumSlots> tied_head;             // [vocab_size, d_model]: what a tied matrix gets from the head
  std::array<std::vector<std::int32_t>, kSumSlots> touched;  // rows of slot's token_embedding that may not be 0
};

// Pointers to one parameter's elements in each slot; null in a slot past 0: the partial sum lives within one call.
template <class T>
using SlotPointers = std::array<T*, kSumSlots>;

// The slots as one pass over some sequences sees them.
template <class T>
struct GradientSlots {
  std::vector<SumStep> steps;                        // what the pass's sequences cause
  std::array<ModelParameters<T*>, kSumSlots> roles;  // tied: head stands for the tied matrix's part from the head
  std::array<std::vector<std::int32_t>*, kSumSlots> touched;
  std::vector<double>* losses;  // each sequence adds its own

  // of(f) = f(the parameters of a slot), for each slot.
  template <class F>
  SlotPointers<T> of(const F& f) const {
    SlotPointers<T> pointers{};
    for (std::size_t i = 0; i < pointers.size(); ++i) pointers[i] = f(roles[i]);
    return pointers;
  }
};

// The slots for the next `count` sequences; memory is made ready.
template <class T>
GradientSlots<T> take_slots(GradientSum::Impl& sum, std::int64_t count);

// to += from, each [count]
template <class T>
void accumulate(std::int64_t count, const T* from, T* to) {
  if constexpr (std::is_same_v<T, float>)
    row_kernels().f32.accumulate(count, from, to);
  else
    for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

// A gradient [size] that is a sum over rows: leaf_of(sequence, first, count, leaf) adds elements first ... first +
// count of that sequence's leaf to leaf [count], which holds zeros. Slots must have memory.
template <class T, class Leaf>
void add_leaves(std::span<const SumStep> steps, const SlotPointers<T>& slots, std::int64_t size, const Leaf& leaf_of) {
  constexpr std::int64_t kColumns = 64;
  parallel_ranges(size, kColumns, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t count = last - first;
    for (const SumStep& step : steps) {
      T* to = slots[static_cast<std::size_t>(step.to)] + first;  // [count]
      if (step.from >= 0) {
        const T* from = slots[static_cast<std::size_t>(step.from)] + first;  // [count]
        for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
        continue;
      }
      T leaf[kColumns] = {};
      leaf_of(step.sequence, first, count, leaf);
      for (std::int64_t j = 0; j < count; ++j) to[j] = step.fresh ? leaf[j] : to[j] + leaf[j];
    }
  });
}

}  // namespace qkv
