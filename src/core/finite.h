// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "qkv/tensor.h"

namespace qkv {

// The first element that is NaN or infinite; -1: all are finite.
std::int64_t first_non_finite(std::span<const float> values) noexcept;
// The same of contiguous elements of f32, f64, bf16 or f16, on all threads.
std::int64_t first_non_finite(const ConstView& values);

}  // namespace qkv
