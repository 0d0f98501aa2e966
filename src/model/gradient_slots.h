// SPDX-License-Identifier: Apache-2.0
// Where gradients are summed: the partial sums of a step (lane_tree.h).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/lane_tree.h"
#include "qkv/gradient_sum.h"
#include "qkv/model_config.h"

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

// to += from, of one shape and type, f32 or f64
void add_to(Tensor& to, const Tensor& from);

// Whether slots that hold no whole gradient do without it (PassSlots::whole).
bool is_layer_matrix(const ParameterInfo& info);

// The slots as one pass over some sequences sees them.
struct GradientSlots {
  std::vector<SumStep> steps;  // what the pass's sequences cause
  GradientSum::Impl* sum = nullptr;

  // One parameter's gradient in each slot, by its number; nulls for -1.
  SlotPointers of(int number) const;
  // What a tied token embedding gets from the head, apart from its own gradient until the step is finished.
  SlotPointers tied_head() const;
  std::array<std::vector<std::int32_t>*, kSumSlots> touched() const;
};

// The slots for the next `count` sequences; memory is made ready.
GradientSlots take_slots(GradientSum::Impl& sum, std::int64_t count);

}  // namespace qkv
