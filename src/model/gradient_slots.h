// SPDX-License-Identifier: Apache-2.0
// Gradient accumulation: the partial sums of a step (lane_tree.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/lane_tree.h"
#include "qkv/gradient_sum.h"
#include "qkv/model_config.h"

namespace qkv {

// Storage of a GradientSum.
struct GradientSum::Impl {
  ModelConfig config;  // resolved
  DType dtype;
  std::vector<ParameterInfo> infos;
  std::vector<bool> wanted;  // [parameter]
  LaneTree lanes;
  LaneRange covered;           // lanes summed in slot 0, once their sequences have been added
  bool empty = false;          // covered has no sequences
  std::vector<double> losses;  // of each sequence added
  bool finished = false;
  std::array<std::vector<Tensor>, kSumSlots> tensors;  // [slot][parameter]; past slot 0 only those needed
  std::array<Tensor, kSumSlots> tied_head;             // [vocab_size, d_model]: gradient of a tied matrix from the head
  std::array<std::vector<std::int32_t>, kSumSlots> touched;  // rows of each slot's token_embedding that may be nonzero
};

// to += from, of one shape and type, f32 or f64
void add_to(Tensor& to, const Tensor& from);

// Whether partial-sum slots omit this parameter (PassSlots::whole).
bool is_layer_matrix(const ParameterInfo& info);

// The slots seen by one pass over some sequences.
struct GradientSlots {
  std::vector<SumStep> steps;  // sum steps for the pass's sequences
  GradientSum::Impl* sum = nullptr;

  // The gradient of parameter `number` in each slot; nulls for -1.
  SlotPointers of(int number) const;
  // The tied token embedding's gradient from the head, separate from its own until the step is finished.
  SlotPointers tied_head() const;
  std::array<std::vector<std::int32_t>*, kSumSlots> touched() const;
};

// The slots for the next `count` sequences; allocates their memory.
GradientSlots take_slots(GradientSum::Impl& sum, std::int64_t count);

}  // namespace qkv
