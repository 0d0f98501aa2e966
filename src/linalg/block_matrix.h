// SPDX-License-Identifier: Apache-2.0
// A matrix W [k, n] whose columns are rows of a file's blocks (q8_0, q4_0 or q4_1; core/block_types.h), stored and
// multiplied in that format, at a few bits per number. Only their order in memory differs (kernels/decode_kernels.h).
//
//   y = x W with x rounded to 16-bit integers, one scale per 32 of them: an error of about 2^-17 of the largest of the
//   32.
//
// The sum of an element runs over its blocks in order, and a block's sum is exact: on any machine, the bits depend only
// on the row of x and the column of W.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kernels/decode_kernels.h"

namespace qkv {

class BlockMatrix {
 public:
  // k: a multiple of 32. Throws std::invalid_argument for another type or k, and std::bad_alloc.
  BlockMatrix(DType type, std::int64_t k, std::int64_t n);

  // Columns first ... first + count - 1 from rows of blocks, [count, row_bytes(type, k)].
  void set_columns(std::int64_t first, std::int64_t count, const std::byte* rows) noexcept;
  // Column j dequantized exactly -> to [k].
  void column(std::int64_t j, float* to) const noexcept;

  std::int64_t columns() const noexcept { return n_; }
  std::int64_t panels() const noexcept { return (n_ + kBlockColumns - 1) / kBlockColumns; }
  std::size_t bytes() const noexcept { return bytes_; }
  const std::byte* panel(std::int64_t i) const noexcept {
    return static_cast<const std::byte*>(elements_.get()) + i * panel_bytes();
  }
  std::int64_t panel_bytes() const noexcept { return k_ / kRowBlock * panel_block_bytes(type_); }
  // Panels begin ... end - 1, on the calling thread: x [rows, k / 32] -> y [rows, n], rows ldy apart.
  void product(std::int64_t begin, std::int64_t end, std::int64_t rows, const RowBlock* x, float* y,
               std::int64_t ldy) const noexcept;

 private:
  DType type_;
  std::int64_t k_, n_;
  std::size_t bytes_;
  std::shared_ptr<void> elements_;  // [panels, k / 32, panel_block_bytes]
};

}  // namespace qkv
