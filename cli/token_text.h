// SPDX-License-Identifier: Apache-2.0
// Tokens and tables as text that is safe to print and stands in columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv::cli {

// What a token's bytes look like on one line: a space as ␣, a line feed as \n, other control characters, characters
// that turn the direction of text, and bytes that are no whole character as \xE3. Nothing in it can steer a terminal.
std::string token_text(std::string_view bytes);

// Columns that printed UTF-8 text takes: 2 for wide characters (CJK, emoji), 0 for combining ones.
std::size_t columns(std::string_view text);
// The text filled up with spaces to `width` columns, or cut to it with … at its end.
std::string left(std::string_view text, std::size_t width);
std::string right(std::string_view text, std::size_t width);

}  // namespace qkv::cli
