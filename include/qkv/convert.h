// SPDX-License-Identifier: Apache-2.0
// Conversion between element types.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

// Converts to another floating type, row-major: rounds to nearest even; representable values are exact. Throws
// std::invalid_argument for types that are not floating.
Tensor converted(const ConstView& from, DType dtype);

}  // namespace qkv
