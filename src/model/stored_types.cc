// SPDX-License-Identifier: Apache-2.0
#include "model/stored_types.h"

#include <stdexcept>
#include <string>

namespace qkv {
namespace {

struct StoredRow {
  StoredType type;
  std::string_view name;
  BlockType blocks;
};
constexpr StoredRow kStored[] = {{StoredType::f32, "f32", BlockType::f32},
                                 {StoredType::bf16, "bf16", BlockType::bf16},
                                 {StoredType::q8_0, "q8_0", BlockType::q8_0},
                                 {StoredType::q4_0, "q4_0", BlockType::q4_0},
                                 {StoredType::q4_1, "q4_1", BlockType::q4_1}};
const StoredRow& row_of(StoredType type) noexcept { return kStored[static_cast<std::size_t>(type)]; }

}  // namespace

BlockType block_type_of(StoredType type) noexcept { return row_of(type).blocks; }

std::string_view stored_type_name(StoredType type) noexcept { return row_of(type).name; }

std::string_view weight_type_name(WeightType type) noexcept {
  return type == WeightType::automatic ? "auto" : type == WeightType::f32 ? "f32" : "bf16";
}

WeightType weight_type_from_name(std::string_view name) {
  for (const WeightType type : {WeightType::automatic, WeightType::f32, WeightType::bf16})
    if (weight_type_name(type) == name) return type;
  throw std::invalid_argument("[weights] expected auto, f32 or bf16; found '" + std::string(name) + "'");
}

}  // namespace qkv
