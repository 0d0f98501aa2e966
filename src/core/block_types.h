// SPDX-License-Identifier: Apache-2.0
// Rows of numbers in file formats: f32, f16 and bf16, and ggml's blocks, which are a few numbers with a common scale
// (little-endian; see the table in docs/formats.md). No other DType is a row type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

std::optional<DType> row_type_from_name(std::string_view name) noexcept;  // case-insensitive

// from [row_bytes(type, elements)], unaligned -> to [elements], dequantized exactly, computed in f32.
void dequantise_row(DType type, const std::byte* from, std::int64_t elements, float* to) noexcept;

// Element i of a row of q8_0.
float q8_0_element(const std::byte* row, std::int64_t i) noexcept;

// from [elements], which must be finite -> to [row_bytes(type, elements)], unaligned; only for types with can_quantise.
// Bit-identical to the Python package `gguf`.
bool can_quantise(DType type) noexcept;
void quantise_row(DType type, const float* from, std::int64_t elements, std::byte* to) noexcept;

// Columns of a matrix W as rows of blocks of one type. `read` writes columns first ... first + count - 1 consecutively;
// it may be called from several threads at once.
struct BlockColumns {
  DType type;
  std::int64_t columns;
  std::function<void(std::int64_t first, std::int64_t count, std::byte* to)> read;
};

}  // namespace qkv
