// SPDX-License-Identifier: Apache-2.0
#include "formats/gguf_splits.h"

#include "text/splitter.h"

namespace qkv {
namespace {

// Patterns copied from the models' tokenizer.json files.
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

const std::vector<GgufSplit>& splits() {
  static const std::vector<GgufSplit> all = [] {
    const std::string gpt2(kGpt2Pattern);
    std::vector<GgufSplit> list;
    for (const char* name : {"gpt-2", "phi-2"}) list.push_back({name, {gpt2}});
    for (const char* name : {"smollm", "starcoder", "refact", "command-r"}) list.push_back({name, {R"(\p{N})", gpt2}});
    for (const char* name : {"llama-bpe", "llama3", "llama-v3"}) list.push_back({name, {kLlama3}, true, true});
    list.push_back({"qwen2", {kQwen2}});
    return list;
  }();
  return all;
}

}  // namespace

const GgufSplit* gguf_split(std::string_view name) {
  for (const GgufSplit& split : splits())
    if (split.name == name) return &split;
  return nullptr;
}

const GgufSplit* gguf_split(const std::vector<std::string>& patterns, bool ignore_merges) {
  for (const GgufSplit& split : splits())
    if (split.patterns == patterns && split.ignore_merges == ignore_merges) return &split;
  return nullptr;
}

std::string gguf_split_names() {
  std::string names;
  for (const GgufSplit& split : splits()) names += (names.empty() ? "" : ", ") + std::string(split.name);
  return names;
}

}  // namespace qkv
