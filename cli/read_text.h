// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace qkv::cli {

// All bytes of a file, or of standard input for "-". Throws qkv::FileError.
std::string read_text(const std::string& path);

}  // namespace qkv::cli
