// SPDX-License-Identifier: Apache-2.0
// Parameters in the type a file stores, for inference-only models, which need no f32 copy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "qkv/tensor.h"

namespace qkv {

// The parameters of one configuration, indexed in the flat order of parameter_infos(). The read functions are
// thread-safe.
class StoredParameters {
 public:
  virtual ~StoredParameters() = default;

  // The type in which parameter i can be kept without loss: f32, bf16, q8_0, q4_0 or q4_1; f32 for any other stored
  // type.
  virtual DType stored_type(std::size_t i) const = 0;
  // Reads parameter i, row-major, as f32 or bf16. Throws qkv::FileError; std::invalid_argument for a wrong shape.
  virtual void read(std::size_t i, View to) const = 0;
  // For a matrix stored in blocks: reads the blocks of columns first ... first + count - 1 (of the token embedding:
  // rows) in sequence, in ggml's layout -> to [count, bytes per column].
  virtual void read_blocks(std::size_t i, std::int64_t first, std::int64_t count, std::byte* to) const = 0;
};

// Weight type: f32 or bf16, to which all weights are converted. nullopt ("auto"): as stored, including block types;
// bf16 only if all matrices are stored as bf16 and this machine has fast bf16.
using WeightType = std::optional<DType>;
WeightType weight_type_from_name(std::string_view name);  // "auto", "f32" or "bf16"; throws std::invalid_argument

}  // namespace qkv
