// SPDX-License-Identifier: Apache-2.0
// An attention problem made from any string of bytes: sizes, options, types, layouts, hostile values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attention/naive.h"
#include "fuzz/bytes.h"

namespace qkv::test {

struct AttentionCase {
  NaiveInput input;  // values as the types below hold them
  DType dtype = DType::f32, mask_dtype = DType::f32, dout_dtype = DType::f32;
  DType out_dtype = DType::f32, gradient_dtype = DType::f32;
  bool wants_probs = false, reference_too = false;
  bool forward_comparable = true, backward_comparable = true;  // f32 sums cannot overflow
  bool infinite = false;                                       // there are infinities in v or dout
  double floor = 0;                                            // what f32's least normal number can come to in a result
  std::uint64_t layout_seed = 0;                               // of strides

  std::string words() const;
};

AttentionCase make_attention_case(const std::uint8_t* data, std::size_t size);

// Runs the case on the tiled path (and the reference in its own type, and the reference in f64) and compares with
// attention written a second time. Returns what differs, or an empty string.
std::string differences(const AttentionCase& c);

}  // namespace qkv::test
