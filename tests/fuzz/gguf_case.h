// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file, read to the end or refused with qkv::FileError.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace qkv::test {

// Opens the container and reads every key and tensor; opens the model in it and reads every parameter, the tokenizer
// and a text through it. Returns how far that went: 0 the container is refused, 1 the model is, 2 the tokenizer is, 3
// nothing is. What is thrown is not a qkv::FileError and so a fault.
int read_everything(std::span<const std::byte> file);

struct GgufSeed {
  std::string name, bytes;
  int reached;  // read_everything(bytes)
};

// Small files of all kinds, and some that are refused where a changed byte seldom comes to.
std::vector<GgufSeed> gguf_seeds();

}  // namespace qkv::test
