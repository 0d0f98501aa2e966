// SPDX-License-Identifier: Apache-2.0
// Converts regular expressions of Hugging Face `tokenizers` to PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// `tokenizers` compiles its patterns with Oniguruma; syntax that the two engines interpret differently (\s, \w, \d, \v,
// scripts, ^ and $ within a text) is rewritten for PCRE2. Throws std::invalid_argument that names syntax without an
// exact equivalent: back references, nested and intersected classes, \b, \h, \R, \X, named groups, ...
std::string from_oniguruma(std::string_view expression);

}  // namespace qkv
