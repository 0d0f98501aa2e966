// SPDX-License-Identifier: Apache-2.0
// Terminal output: tokens that are safe to print, and aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv {

// A token's bytes on one line: a space as ␣, a line feed as \n, a tab as \t; other control characters, characters
// that change the direction of text, and bytes that are not UTF-8 as \xE3. The result cannot control a terminal.
std::string token_text(std::string_view bytes);

// Terminal width of UTF-8 text: 2 for wide characters (CJK, emoji), 0 for combining ones.
std::size_t text_columns(std::string_view text);
// The text padded with spaces to `width` columns, or truncated to it, ending in ….
std::string left_aligned(std::string_view text, std::size_t width);
std::string right_aligned(std::string_view text, std::size_t width);

// Decimal digits in groups of three: "1,048,576".
std::string with_commas(std::string digits);

}  // namespace qkv
