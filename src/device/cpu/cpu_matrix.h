// SPDX-License-Identifier: Apache-2.0
// A matrix on the CPU device: packed weights.
#pragma once

#include "device/device.h"
#include "linalg/weights.h"

namespace qkv {

struct CpuMatrix : Matrix {
  Weights weights;

  CpuMatrix(DType operand, std::int64_t in, std::int64_t out) : weights(operand, in, out) {}
  std::int64_t in() const noexcept override { return weights.in(); }
  std::int64_t out() const noexcept override { return weights.out(); }
  std::size_t bytes() const noexcept override { return weights.bytes(); }
};

// Column j of a matrix stored in blocks, dequantized -> to [in]
inline void matrix_column(const Matrix& w, std::int64_t j, float* to) {
  static_cast<const CpuMatrix&>(w).weights.column(j, to);
}

}  // namespace qkv
