// SPDX-License-Identifier: Apache-2.0
// Valid files that seed the fuzz targets of format_readers.cc, and the other files in their folders.
#pragma once

#include <string>
#include <vector>

#include "qkv/model.h"
#include "qkv/tokenizer.h"

namespace qkv::test {

inline ModelConfig smallest() {
  ModelConfig config;
  config.n_layer = config.n_head = 1;
  config.d_model = config.d_ff = config.ctx_len = 2;
  return config;
}

std::vector<std::string> safetensors_seeds();
std::vector<std::string> index_seeds();
std::vector<std::string> config_seeds();
std::vector<std::string> directory_seeds();
std::vector<std::string> tokenizer_seeds();
std::vector<std::string> npy_seeds();
std::vector<std::string> andrea_seeds();
std::vector<std::string> harris_seeds();
std::vector<std::string> adapter_seeds();
std::vector<std::string> chat_seeds();

inline constexpr const char* kTinyTokenizer =
    R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
        "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})";

// Written into the folder once: one.safetensors and two.safetensors, which an index may list; harris_segments.json and
// andrea.json, the companions of c.bin. Return true.
bool write_shards();
bool write_andrea();
ModelConfig adapted_model();
Tokenizer talking_tokenizer();  // bytes, the end token, and the control tokens of all chat forms

}  // namespace qkv::test
