// SPDX-License-Identifier: Apache-2.0
// Device memory that a model keeps between passes.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace qkv {

// Grows to the largest size requested and is reused. Growing discards the contents.
class Buffer {
 public:
  View take(const Device& device, DType dtype, const Dims& shape) {
    const std::int64_t size = element_count(shape);
    if (size > memory_.size() || dtype != memory_.dtype()) memory_ = Tensor();
    if (!memory_.raw()) memory_ = device.allocate(Dims{size}, dtype);
    view_ = {memory_.raw(), dtype, shape, contiguous_strides(shape)};
    return view_;
  }
  // The most recently taken view.
  const View& get() const noexcept { return view_; }

 private:
  Tensor memory_;
  View view_;
};

// The columns first ... first + count of a view [rows, width].
inline View columns_of(const View& x, std::int64_t first, std::int64_t count) {
  return {static_cast<char*>(x.data) + first * static_cast<std::int64_t>(dtype_size(x.dtype)), x.dtype,
          Dims{x.shape[0], count}, x.strides};
}
// The rows first ... first + count.
inline View rows_of(const View& x, std::int64_t first, std::int64_t count) {
  return {static_cast<char*>(x.data) + first * x.strides[0] * static_cast<std::int64_t>(dtype_size(x.dtype)), x.dtype,
          Dims{count, x.shape[1]}, x.strides};
}

}  // namespace qkv
