// SPDX-License-Identifier: Apache-2.0
// Products with a matrix in oneDNN's packed layout: panels of 64 columns, each with its rows stored consecutively.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/team.h"
#include "qkv/tensor.h"

namespace qkv {

// Whether packed products of this compute dtype meet the guarantees of gemm.h on this machine: f32 with AVX-512, bf16
// with AVX512_BF16.
bool packed_products(DType operand);

class PackedMatrix {
 public:
  // B [k, n] from dense f32 [k, n], or [n, k] if `transposed`, rounded to the compute dtype (f32 or bf16).
  void pack(DType operand, std::int64_t k, std::int64_t n, const float* b, bool transposed);

  // x dense [rows, k] in the compute dtype, bias [n] or null -> y dense [rows, n] of type y_dtype (f32, or bf16 if the
  // compute dtype is bf16). rows > 0. Few rows use our own kernels (small_batch.cc), which read the matrix at memory
  // bandwidth and sum in oneDNN's order: the same bits.
  void product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;
  // Whether our small-batch kernels are available for this matrix: its layout and the order of sums are known.
  bool has_small_batch() const;
  // Whether a product of this many rows uses them.
  bool has_small_batch(std::int64_t rows) const { return rows <= kSmallBatch && has_small_batch(); }
  // Waiting threads of the team prefetch what they will read in the next small-batch product.
  void prefetch(Team& team) const noexcept;
  std::size_t bytes() const noexcept { return bytes_; }
  enum class Algorithm : std::uint8_t { automatic, library, small_batch };
  void product(Algorithm algorithm, std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;

 private:
  static constexpr std::int64_t kSmallBatch = 16;  // above this, oneDNN is as fast

  void library_product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const;
  void small_batch_product(std::int64_t chunk, std::int64_t rows, const void* x, const float* bias, DType y_dtype,
                           void* y) const;
  std::int64_t small_batch_chunk() const;  // 0: unknown
  std::int64_t find_chunk() const;

  DType operand_ = DType::f32;
  std::int64_t k_ = 0, n_ = 0;
  int vectors_ = 0;              // columns per panel / 16; 0: unknown layout
  std::int64_t panel_size_ = 0;  // elements
  std::size_t bytes_ = 0;
  std::shared_ptr<void> elements_;  // as many as oneDNN requires
};

}  // namespace qkv
