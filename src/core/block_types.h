// SPDX-License-Identifier: Apache-2.0
// Element types of files whose rows are blocks: a few numbers with a scale of their own, as ggml lays them out
// (little-endian; docs/formats.md has the table). The single-number types count as blocks of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

namespace qkv {

enum class BlockType : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };

struct BlockFormat {
  BlockType type;
  std::string_view name;  // "q8_0"
  std::int64_t elements;  // in a block
  std::int64_t bytes;     // of a block
  bool writable;          // whether quantise_row knows it
};

const BlockFormat& block_format(BlockType type) noexcept;
std::optional<BlockType> block_type_from_name(std::string_view name) noexcept;  // by name, any case

// The bytes of a row of `elements`, which must be a multiple of the block's.
inline std::int64_t row_bytes(BlockType type, std::int64_t elements) noexcept {
  const BlockFormat& format = block_format(type);
  return elements / format.elements * format.bytes;
}

// from [row_bytes(type, elements)], at any address -> to [elements], exactly what the blocks say, computed in f32.
void dequantise_row(BlockType type, const std::byte* from, std::int64_t elements, float* to) noexcept;

// from [elements], which must be finite -> to [row_bytes(type, elements)], at any address. The types that are writable
// alone. Bit for bit what the Python package `gguf` makes of the same numbers.
void quantise_row(BlockType type, const float* from, std::int64_t elements, std::byte* to) noexcept;

// Columns of a matrix W as rows of blocks of one type, which `read` writes for columns first ... first + count - 1, one
// after the other; it may be called from several threads at once.
struct BlockColumns {
  BlockType type;
  std::int64_t columns;
  std::function<void(std::int64_t first, std::int64_t count, std::byte* to)> read;
};

}  // namespace qkv
