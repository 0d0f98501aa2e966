// SPDX-License-Identifier: Apache-2.0
// Device arrays for tests, filled from f64 numbers and read back as f64.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>
#include <vector>

#include "core/float_types.h"
#include "core/random.h"
#include "device/device.h"

namespace qkv::test {

using Numbers = std::vector<double>;

inline double load(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::f64:
      return tensor.data<double>()[i];
    case DType::bf16:
      return widen(tensor.data<bf16>()[i]);
    default:
      return tensor.data<float>()[i];
  }
}
inline void store(Tensor& tensor, std::int64_t i, double value) {
  switch (tensor.dtype()) {
    case DType::f64:
      tensor.data<double>()[i] = value;
      break;
    case DType::bf16:
      tensor.data<bf16>()[i] = narrow<bf16>(static_cast<float>(value));
      break;
    default:
      tensor.data<float>()[i] = static_cast<float>(value);
  }
}

// Normal random numbers that f32 or bf16 represents exactly, so that every device gets the same input.
inline Numbers normals(std::int64_t count, std::uint64_t stream, DType rounded_to = DType::f64) {
  const Random random(11, stream);
  Tensor rounded(Dims{count}, rounded_to);
  Numbers x;
  for (std::int64_t i = 0; i < count; ++i) {
    store(rounded, i, random.normal(static_cast<std::uint64_t>(i)));
    x.push_back(load(rounded, i));
  }
  return x;
}

inline double dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A dense array, or a matrix [rows, width] with a row stride and NaN between its rows.
class Array {
 public:
  Array(const Device& device, DType type, const Dims& shape, std::int64_t row_stride = 0)
      : device_(&device), shape_(shape), strides_(contiguous_strides(shape)) {
    if (row_stride != 0) strides_[0] = row_stride;
    memory_ = device.allocate(Dims{row_stride != 0 ? shape[0] * row_stride : element_count(shape)}, type);
    fill(Numbers(static_cast<std::size_t>(element_count(shape)), std::numeric_limits<double>::quiet_NaN()));
  }
  Array(const Device& device, DType type, const Dims& shape, const Numbers& values, std::int64_t row_stride = 0)
      : Array(device, type, shape, row_stride) {
    fill(values);
  }

  operator View() { return {memory_.raw(), memory_.dtype(), shape_, strides_}; }
  operator ConstView() const { return {memory_.raw(), memory_.dtype(), shape_, strides_}; }
  View view() { return *this; }
  void* raw() { return memory_.raw(); }
  // For a matrix: `count` columns from `first` on.
  View columns(std::int64_t first, std::int64_t count) {
    return {static_cast<char*>(memory_.raw()) + first * static_cast<std::int64_t>(dtype_size(memory_.dtype())),
            memory_.dtype(), Dims{shape_[0], count}, strides_};
  }

  Numbers values() const {
    Tensor host(memory_.shape(), memory_.dtype());
    device_->to_host(memory_, host.raw());
    Numbers numbers;
    for_elements([&](std::int64_t at) { numbers.push_back(load(host, at)); });
    return numbers;
  }

 private:
  template <class F>
  void for_elements(const F& f) const {
    const std::int64_t size = element_count(shape_), rows = shape_.rank() == 0 ? 1 : shape_[0];
    for (std::int64_t i = 0; i < size; ++i) f(i / (size / rows) * strides_[0] + i % (size / rows));
  }
  void fill(const Numbers& values) {
    Tensor host(memory_.shape(), memory_.dtype());
    for (std::int64_t i = 0; i < host.size(); ++i) store(host, i, std::numeric_limits<double>::quiet_NaN());
    std::size_t next = 0;
    for_elements([&](std::int64_t at) { store(host, at, values[next++]); });
    device_->from_host(host.raw(), memory_);
  }

  const Device* device_;
  Dims shape_, strides_;
  Tensor memory_;
};

// A step of `batch` sequences, all in slot 0, in order.
inline std::vector<SumStep> in_order(std::int64_t batch) {
  std::vector<SumStep> steps;
  for (std::int64_t b = 0; b < batch; ++b) steps.push_back({0, -1, b == 0, b});
  return steps;
}
// The same, but the second half of the sequences is summed in slot 1 and then added to slot 0.
inline std::vector<SumStep> in_two_slots(std::int64_t batch) {
  std::vector<SumStep> steps;
  for (std::int64_t b = 0; b < batch; ++b) {
    const bool second = 2 * b >= batch;
    steps.push_back({second ? 1 : 0, -1, b == 0 || (second && 2 * (b - 1) < batch), b});
  }
  if (batch > 1) steps.push_back({0, 1, false, 0});
  return steps;
}

}  // namespace qkv::test
