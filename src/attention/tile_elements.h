// SPDX-License-Identifier: Apache-2.0
// Elements of any storage type and stride, to and from rows of f32.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Copies n elements, `stride` apart from element `offset` on, widened to f32; of q8_0, adjacent ones from a block's
// first.
void widen_elements(DType dtype, const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                    float* to) noexcept;
// Writes n f32 numbers in the type given.
void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept;

}  // namespace qkv
