// SPDX-License-Identifier: Apache-2.0
// Products with a matrix in oneDNN's packed layout: panels of 64 columns, each with its rows one after the other.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

namespace qkv {

// Whether packed products of these operands keep the promises of gemm.h here: f32 with AVX-512, bf16 with AVX512_BF16.
bool packed_products(DType operand);

class PackedMatrix {
 public:
  // B [k, n] from dense f32 [k, n], or [n, k] if `transposed`, rounded to the operand's type (f32 or bf16).
  void pack(DType operand, std::int64_t k, std::int64_t n, const float* b, bool transposed);

  // x dense [rows, k] of the operand's type, bias [n] or null -> y dense [rows, n] of type y_dtype (f32, or bf16 for
  // bf16 operands). rows > 0.
  void product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;

 private:
  DType operand_ = DType::f32;
  std::int64_t k_ = 0, n_ = 0;
  Tensor elements_;  // as many as oneDNN asks for
};

}  // namespace qkv
