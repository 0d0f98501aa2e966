// SPDX-License-Identifier: Apache-2.0
// Text as a file: pages, pictures, JSON.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// The whole of `text` as the file `path`, through a link if it is one. Atomic: what was there stays until all of it is
// written. A pipe or a device is written to as it is. Throws qkv::FileError.
void save_text(const std::string& path, std::string_view text);

}  // namespace qkv
