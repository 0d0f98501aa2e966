// SPDX-License-Identifier: Apache-2.0
#include "linalg/block_matrix.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/block_types.h"
#include "core/large_memory.h"
#include "qkv/tensor.h"

namespace qkv {
namespace {

constexpr std::int64_t kRowsAtOnce = 48;

// Bytes before the quants: in a block of a file, and in a block of a panel.
std::int64_t file_head(DType type) noexcept { return type == DType::q4_1 ? 4 : 2; }

// q8_0 is stored as q + 128, as required by products of unsigned with signed bytes.
std::byte turned(DType type, std::byte quant) noexcept { return type == DType::q8_0 ? quant ^ std::byte{0x80} : quant; }

}  // namespace

BlockMatrix::BlockMatrix(DType type, std::int64_t k, std::int64_t n) : type_(type), k_(k), n_(n) {
  if (type != DType::q8_0 && type != DType::q4_0 && type != DType::q4_1)
    throw std::invalid_argument("[block matrix] expected q8_0, q4_0 or q4_1; found " + std::string(dtype_name(type)));
  if (k < 0 || n < 0 || k % kRowBlock != 0)
    throw std::invalid_argument("[block matrix] expected rows of a multiple of 32 elements; found " +
                                to_string(Dims{k, n}));
  bytes_ = static_cast<std::size_t>(element_count(Dims{panels(), k / kRowBlock, panel_block_bytes(type_)}));
  elements_ = matrix_memory(bytes_);
  std::memset(elements_.get(), 0, bytes_);
}

void BlockMatrix::set_columns(std::int64_t first, std::int64_t count, const std::byte* rows) noexcept {
  const std::int64_t blocks = k_ / kRowBlock, bytes = panel_block_bytes(type_);
  const std::int64_t file_bytes = block_size(type_).bytes, head = file_head(type_), quants = file_bytes - head;
  auto* panel_bytes = static_cast<std::byte*>(elements_.get());
  for (std::int64_t j = first; j < first + count; ++j) {
    const std::int64_t panel = j / kBlockColumns, c = j % kBlockColumns;
    for (std::int64_t b = 0; b < blocks; ++b, rows += file_bytes) {
      std::byte* to = panel_bytes + (panel * blocks + b) * bytes;
      for (std::int64_t h = 0; h < head; h += 2) std::copy_n(rows + h, 2, to + 16 * h + 2 * c);
      for (std::int64_t i = 0; i < quants; ++i)
        to[16 * head + i / 4 * 64 + c * 4 + i % 4] = turned(type_, rows[head + i]);
    }
  }
}

void BlockMatrix::column(std::int64_t j, float* to) const noexcept {
  const std::int64_t blocks = k_ / kRowBlock, bytes = panel_block_bytes(type_);
  const std::int64_t file_bytes = block_size(type_).bytes, head = file_head(type_), quants = file_bytes - head;
  const std::int64_t panel = j / kBlockColumns, c = j % kBlockColumns;
  std::byte block[64];
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::byte* from = static_cast<const std::byte*>(elements_.get()) + (panel * blocks + b) * bytes;
    for (std::int64_t h = 0; h < head; h += 2) std::copy_n(from + 16 * h + 2 * c, 2, block + h);
    for (std::int64_t i = 0; i < quants; ++i)
      block[head + i] = turned(type_, from[16 * head + i / 4 * 64 + c * 4 + i % 4]);
    dequantise_row(type_, block, kRowBlock, to + b * kRowBlock);
  }
}

void BlockMatrix::product(std::int64_t begin, std::int64_t end, std::int64_t rows, const RowBlock* x, float* y,
                          std::int64_t ldy) const noexcept {
  const DecodeKernels& kernel = decode_kernels();
  const std::int64_t blocks = k_ / kRowBlock, bytes = panel_block_bytes(type_);
  const auto* panel_bytes = static_cast<const std::byte*>(elements_.get());
  alignas(64) float sums[kRowsAtOnce * kBlockColumns];  // [kRowsAtOnce, kBlockColumns]
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t first = panel * kBlockColumns, width = std::min(kBlockColumns, n_ - first);
    const std::byte* from = panel_bytes + panel * blocks * bytes;
    if (width == kBlockColumns) {
      kernel.block_panel(type_, rows, blocks, from, x, y + first, ldy);
      continue;
    }
    for (std::int64_t r = 0; r < rows; r += kRowsAtOnce) {
      const std::int64_t count = std::min(kRowsAtOnce, rows - r);
      kernel.block_panel(type_, count, blocks, from, x + r * blocks, sums, kBlockColumns);
      for (std::int64_t i = 0; i < count; ++i) std::copy_n(sums + i * kBlockColumns, width, y + (r + i) * ldy + first);
    }
  }
}

}  // namespace qkv
