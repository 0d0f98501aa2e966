// SPDX-License-Identifier: Apache-2.0
// Pre-tokenizers named by `tokenizer.ggml.pre`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

struct GgufSplit {
  std::string_view name;
  std::vector<std::string> patterns;  // TokenizerData::patterns
  bool ignore_merges = false;
  bool add_bos = false;  // default of `tokenizer.ggml.add_bos_token`
};

// Null: unknown name.
const GgufSplit* gguf_split(std::string_view name);
const GgufSplit* gguf_split(const std::vector<std::string>& patterns, bool ignore_merges);
std::string gguf_split_names();  // for messages

}  // namespace qkv
