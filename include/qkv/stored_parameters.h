// SPDX-License-Identifier: Apache-2.0
// Parameters as a file stores them, for models that read and generate and need no f32 copy to be trained.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

// The parameters of one configuration, numbered in the flat order of parameter_infos(). Reading may be called from
// several threads at once.
class StoredParameters {
 public:
  virtual ~StoredParameters() = default;

  // The type that parameter i can be kept in without a change of any number: f32, bf16, q8_0, q4_0 or q4_1; f32 for
  // those that are stored as others.
  virtual DType stored_type(std::size_t i) const = 0;
  // Parameter i, row-major, as f32 or bf16. Throws qkv::FileError, std::invalid_argument for another shape.
  virtual void read(std::size_t i, View to) const = 0;
  // Of a matrix stored in blocks: the blocks of its columns first ... first + count - 1 (of the token embedding: its
  // rows), one after the other, as ggml lays them out -> to [count, bytes of a column].
  virtual void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const = 0;
};

// What weights are kept as: f32 or bf16, all of them, expanded or rounded. Nothing ("auto"): as they are stored, blocks
// as blocks; bf16 only if all matrices are stored so and this machine multiplies it fast.
using WeightType = std::optional<DType>;
WeightType weight_type_from_name(std::string_view name);  // "auto", "f32" or "bf16"; throws std::invalid_argument

}  // namespace qkv
