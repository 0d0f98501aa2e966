// SPDX-License-Identifier: Apache-2.0
// Writing text files: HTML pages, SVG, JSON.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// Writes `text` to `path`, following a symbolic link. Atomic: the old file stays until all of the text is written.
// Pipes and devices are written to directly. Throws qkv::FileError.
void save_text(const std::string& path, std::string_view text);

}  // namespace qkv
