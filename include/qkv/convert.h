// SPDX-License-Identifier: Apache-2.0
// Elements as another type.
#pragma once

#include "qkv/tensor.h"

namespace qkv {

// The elements as another floating type, row-major: rounds to nearest even; what the type can hold is exact. Throws
// std::invalid_argument for types that are not floating.
Tensor converted(const ConstView& from, DType dtype);

}  // namespace qkv
