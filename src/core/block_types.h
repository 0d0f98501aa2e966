// SPDX-License-Identifier: Apache-2.0
// Rows of numbers as files hold them: f32, f16 and bf16, and blocks, a few numbers with a scale of their own, as ggml
// lays them out (little-endian; docs/formats.md has the table). No other DType is a row type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

std::optional<DType> row_type_from_name(std::string_view name) noexcept;  // any case

// from [row_bytes(type, elements)], at any address -> to [elements], exactly what the blocks say, computed in f32.
void dequantise_row(DType type, const std::byte* from, std::int64_t elements, float* to) noexcept;

// Element i of a row of q8_0.
float q8_0_element(const std::byte* row, std::int64_t i) noexcept;

// from [elements], which must be finite -> to [row_bytes(type, elements)], at any address; only for types that
// can_quantise. Bit for bit what the Python package `gguf` makes of the same numbers.
bool can_quantise(DType type) noexcept;
void quantise_row(DType type, const float* from, std::int64_t elements, std::byte* to) noexcept;

// Columns of a matrix W as rows of blocks of one type, which `read` writes for columns first ... first + count - 1, one
// after the other; it may be called from several threads at once.
struct BlockColumns {
  DType type;
  std::int64_t columns;
  std::function<void(std::int64_t first, std::int64_t count, std::byte* to)> read;
};

}  // namespace qkv
