// SPDX-License-Identifier: Apache-2.0
// Access to elements of any storage type and stride: single elements, and conversion to and from rows of f32.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// f64 to f32; finite values stay finite: the lowest double becomes the lowest float, not -inf.
float finite_to_f32(double x) noexcept;

// The element of a floating or q8_0 view at an element offset, as T.
template <class T>
T load_element(const ConstView& view, std::int64_t offset) noexcept;
// Stores value at an element offset, rounded to the view's floating type.
template <class T>
void store_element(const View& view, std::int64_t offset, T value) noexcept;

// Copies n elements from element `offset` on, `stride` apart, widened to f32; q8_0 elements must be adjacent and start
// at a block boundary.
void widen_elements(DType dtype, const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                    float* to) noexcept;
// Writes n f32 numbers, converted to `dtype`.
void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept;

}  // namespace qkv
