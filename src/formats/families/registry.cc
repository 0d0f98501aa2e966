// SPDX-License-Identifier: Apache-2.0
// The list of families.
#include "formats/families/family.h"

namespace qkv {

extern const Family gpt2_family;
extern const Family qwen3_family;
extern const Family qwen2_family;
extern const Family llama_family;

std::span<const Family* const> families() {
  // More specific families first: a model that several can represent is written as the first.
  static constexpr const Family* kFamilies[] = {&gpt2_family, &qwen3_family, &qwen2_family, &llama_family};
  return kFamilies;
}

}  // namespace qkv
