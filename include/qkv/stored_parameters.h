// SPDX-License-Identifier: Apache-2.0
// Parameters as a file stores them, for models that read and generate and need no f32 copy to be trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

// What a parameter is stored as, as far as a model can keep it so: single numbers, or rows of blocks (docs/formats.md).
enum class StoredType : std::uint8_t { f32, bf16, q8_0, q4_0, q4_1 };
std::string_view stored_type_name(StoredType type) noexcept;  // "q8_0"
inline bool is_blocks(StoredType type) noexcept { return type >= StoredType::q8_0; }

// The parameters of one configuration, numbered in the flat order of parameter_infos(). Reading may be called from
// several threads at once.
class StoredParameters {
 public:
  virtual ~StoredParameters() = default;

  // The type that parameter i can be kept in without a change of any number; f32 for those that are stored as others.
  virtual StoredType stored_type(std::size_t i) const = 0;
  // Parameter i, row-major, as f32 or bf16. Throws qkv::FileError, std::invalid_argument for another shape.
  virtual void read(std::size_t i, View to) const = 0;
  // Of a matrix stored in blocks: the blocks of its columns first ... first + count - 1 (of the token embedding: its
  // rows), one after the other, as ggml lays them out -> to [count, bytes of a column].
  virtual void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const = 0;
};

// What weights are kept as. automatic: as they are stored, blocks as blocks; bf16 only if all matrices are stored so
// and this machine multiplies it fast. f32 and bf16: all of them, expanded or rounded.
enum class WeightType : std::uint8_t { automatic, f32, bf16 };
std::string_view weight_type_name(WeightType type) noexcept;  // "auto", "f32", "bf16"
WeightType weight_type_from_name(std::string_view name);      // throws std::invalid_argument

}  // namespace qkv
