// SPDX-License-Identifier: Apache-2.0
// Parser for the JSON header of a safetensors file, which is untrusted input.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

struct SafetensorsType {
  std::string_view name;
  int size;                     // bytes per element
  std::optional<DType> native;  // qkv's corresponding type, if any
};
// nullptr if the format does not have such a type.
const SafetensorsType* safetensors_type(std::string_view name) noexcept;
const SafetensorsType& safetensors_type(DType dtype) noexcept;

struct SafetensorsInfo {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // within the data
};

struct SafetensorsHeader {
  std::vector<SafetensorsInfo> tensors;  // sorted by begin
  std::map<std::string, std::string> metadata;
};

// Checks everything that can be checked without the elements, given their total size in bytes. `offset` is the position
// of the text in the file. Throws qkv::FileError.
SafetensorsHeader parse_safetensors_header(const std::string& path, std::int64_t offset, std::string_view text,
                                           std::uint64_t data_size);

}  // namespace qkv
