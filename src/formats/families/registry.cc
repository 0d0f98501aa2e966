// SPDX-License-Identifier: Apache-2.0
// The families, one line each.
#include "formats/families/family.h"

namespace qkv {

extern const Family gpt2_family;
extern const Family qwen3_family;
extern const Family qwen2_family;
extern const Family llama_family;

std::span<const Family* const> families() {
  // The more special before the more general: a model that both can express is written as the first.
  static constexpr const Family* kFamilies[] = {&gpt2_family, &qwen3_family, &qwen2_family, &llama_family};
  return kFamilies;
}

}  // namespace qkv
