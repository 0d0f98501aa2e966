// SPDX-License-Identifier: Apache-2.0
// The elements of a strided view as another type.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

// Writes the elements of `from` (f32, f64, bf16 or f16 of rank 1 or 2, any strides, at any address) to `to`, of the
// same shape, one of these types and any strides, aligned for its type. Rounds to nearest even; what the target can
// hold is exact. Throws std::invalid_argument for other types and ranks.
void convert_elements(const ConstView& from, const View& to);

}  // namespace qkv
