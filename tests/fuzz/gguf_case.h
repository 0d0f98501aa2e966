// SPDX-License-Identifier: Apache-2.0
// Any bytes as a GGUF file, read to the end or refused with qkv::FileError.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace qkv::test {

// Opens the container and reads every key and tensor; opens the model in it and reads every parameter, the tokenizer
// and a text through it. Returns how far that went: 0 the container is refused, 1 the model is, 2 the tokenizer is, 3
// nothing is. What is thrown is not a qkv::FileError and so a fault.
int read_everything(std::span<const std::byte> file);

// Valid files, small, of all kinds: {name, bytes}.
std::vector<std::pair<std::string, std::string>> gguf_seeds();

}  // namespace qkv::test
