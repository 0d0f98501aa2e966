// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file: read to the end or refused with qkv::FileError.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace qkv::test {

// Opens the container and reads every key and tensor, then the model and every parameter, then the tokenizer, which
// encodes a text. Returns the first stage that refused: 0 the container, 1 the model, 2 the tokenizer, 3 none. Any
// exception thrown is not a qkv::FileError and therefore a bug.
int read_everything(std::span<const std::byte> file);

struct GgufSeed {
  std::string name, bytes;
  int reached;  // read_everything(bytes)
};

// Small files of all kinds, including invalid ones that mutation seldom reaches.
std::vector<GgufSeed> gguf_seeds();

}  // namespace qkv::test
