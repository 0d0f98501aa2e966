// SPDX-License-Identifier: Apache-2.0
// Products with a matrix in oneDNN's packed layout: panels of 64 columns, each with its rows one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/team.h"
#include "qkv/tensor.h"

namespace qkv {

// Whether packed products of these operands keep the promises of gemm.h here: f32 with AVX-512, bf16 with AVX512_BF16.
bool packed_products(DType operand);

class PackedMatrix {
 public:
  // B [k, n] from dense f32 [k, n], or [n, k] if `transposed`, rounded to the operand's type (f32 or bf16).
  void pack(DType operand, std::int64_t k, std::int64_t n, const float* b, bool transposed);

  // x dense [rows, k] of the operand's type, bias [n] or null -> y dense [rows, n] of type y_dtype (f32, or bf16 for
  // bf16 operands). rows > 0. A few rows run on kernels of our own (small_batch.cc), which read the matrix as fast as
  // memory gives it and sum in oneDNN's order: the same bits.
  void product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;
  // Whether a few rows do so here: the layout and the order of sums are known. `automatic` is how it usually goes.
  bool has_small_batch() const;
  // Whether so many rows do so.
  bool has_small_batch(std::int64_t rows) const { return rows <= kSmallBatch && has_small_batch(); }
  // Threads of the team that wait ask memory for what they will read of the next product of a few rows.
  void prefetch(Team& team) const noexcept;
  std::size_t bytes() const noexcept { return bytes_; }
  enum class Algorithm : std::uint8_t { automatic, library, small_batch };
  void product(Algorithm algorithm, std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;

 private:
  static constexpr std::int64_t kSmallBatch = 16;  // from here on the library is as fast

  void library_product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;
  void small_batch_product(std::int64_t chunk, std::int64_t rows, const void* x, const float* bias, DType y_dtype,
                           void* y) const;
  std::int64_t small_batch_chunk() const;  // 0: not known
  std::int64_t find_chunk() const;

  DType operand_ = DType::f32;
  std::int64_t k_ = 0, n_ = 0;
  int vectors_ = 0;              // columns of a panel / 16; 0: a layout that is not known
  std::int64_t panel_size_ = 0;  // elements
  std::size_t bytes_ = 0;
  std::shared_ptr<void> elements_;  // as many as oneDNN asks for
};

}  // namespace qkv
