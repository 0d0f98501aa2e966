// SPDX-License-Identifier: Apache-2.0
// An attention problem generated from arbitrary bytes: sizes, options, types, layouts, hostile values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attention/naive.h"
#include "fuzz/bytes.h"

namespace qkv::test {

struct AttentionCase {
  NaiveInput input;  // values as the types below represent them
  DType dtype = DType::f32, mask_dtype = DType::f32, dout_dtype = DType::f32;
  DType out_dtype = DType::f32, gradient_dtype = DType::f32;
  bool wants_probs = false, reference_too = false;
  bool forward_comparable = true, backward_comparable = true;  // f32 sums cannot overflow
  bool infinite = false;                                       // v or dout contain infinities
  double floor = 0;                                            // the effect on a result of f32's smallest normal number
  std::uint64_t layout_seed = 0;                               // for the strides

  std::string words() const;
};

AttentionCase make_attention_case(const std::uint8_t* data, std::size_t size);

// Runs the case on the tiled path (and on the reference path in its own type and in f64), compares with the independent
// implementation, and returns the differences, or an empty string.
std::string differences(const AttentionCase& c);

}  // namespace qkv::test
