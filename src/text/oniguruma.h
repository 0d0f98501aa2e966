// SPDX-License-Identifier: Apache-2.0
// Regular expressions as Hugging Face's `tokenizers` writes them, for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// `tokenizers` compiles its patterns with Oniguruma; where both engines take the same text differently (\s, \w, \d, \v,
// scripts, ^ and $ within a text) it is written out for PCRE2. Throws std::invalid_argument that names what has no
// certain counterpart: back references, nested and intersected classes, \b, \h, \R, \X, named groups, ...
std::string from_oniguruma(std::string_view expression);

}  // namespace qkv
