// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "qkv/tensor.h"

namespace qkv {

// values: one sequence, [1, ...] of two to four axes, f32, f64 or bf16, of any strides -> [...] f32, row-major
Tensor recorded(const ConstView& values);

}  // namespace qkv
