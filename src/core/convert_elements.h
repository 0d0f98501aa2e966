// SPDX-License-Identifier: Apache-2.0
// Converts the elements of a strided view to another type.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

// Writes the elements of `from` (f32, f64, bf16 or f16, any strides, unaligned) to `to`, which has the same shape, one
// of these types, proper alignment and, up to rank 2, any strides. Rounds to nearest even; values that the target can
// represent are exact. Throws std::invalid_argument for other types.
// hold is exact. Throws std::invalid_argument for other types.
void convert_elements(const ConstView& from, const View& to);

}  // namespace qkv
