// SPDX-License-Identifier: Apache-2.0
// Elements of any storage type and stride: one at a time, and to and from rows of f32.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// f64 to f32, where a finite number stays finite: the lowest number is a number like any other, not -inf.
float finite_to_f32(double x) noexcept;

// The element of a floating or q8_0 view at an element offset, as T.
template <class T>
T load_element(const ConstView& view, std::int64_t offset) noexcept;
// value at an element offset, rounded to the view's type, which is floating.
template <class T>
void store_element(const View& view, std::int64_t offset, T value) noexcept;

// Copies n elements, `stride` apart from element `offset` on, widened to f32; of q8_0, adjacent ones from a block's
// first.
void widen_elements(DType dtype, const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                    float* to) noexcept;
// Writes n f32 numbers in the type given.
void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept;

}  // namespace qkv
