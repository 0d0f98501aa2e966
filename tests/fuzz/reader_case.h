// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of one of the formats, read to the end or refused with qkv::FileError.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv::test {

// safetensors, index, config, tokenizer, npy, andrea, harris, adapter
std::vector<std::string> reader_names();

// Reads the bytes as that reader's file, and all that can be read from it. Returns whether they were accepted. What is
// thrown is not a qkv::FileError and so a fault.
bool read_bytes(std::string_view reader, std::string_view bytes);

// Valid files, small, of all kinds.
std::vector<std::string> reader_seeds(std::string_view reader);

}  // namespace qkv::test
