// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace qkv::cli {

// All bytes of a file, or of standard input for "-". If that is a terminal, a message on standard error says that
// `what`
// ("the prompt") is read from the keyboard, and a single Ctrl-D ends it, even after text without a newline. Throws
// qkv::FileError.
std::string read_text(const std::string& path, std::string_view what);

}  // namespace qkv::cli
