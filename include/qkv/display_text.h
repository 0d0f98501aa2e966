// SPDX-License-Identifier: Apache-2.0
// Text for a terminal: tokens that are safe to print, and tables in columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace qkv {

// A token's bytes on one line: a space as ␣, a line feed as \n, a tab as \t; other control characters, characters
// that change the direction of text, and bytes that are not UTF-8 as \xE3. The result cannot control a terminal.
std::string token_text(std::string_view bytes);

// Columns that printed UTF-8 text takes: 2 for wide characters (CJK, emoji), 0 for combining ones.
std::size_t text_columns(std::string_view text);
// The text padded with spaces to `width` columns, or cut to it with … at its end.
std::string left_aligned(std::string_view text, std::size_t width);
std::string right_aligned(std::string_view text, std::size_t width);

// Decimal digits in groups: "1,048,576".
std::string with_commas(std::string digits);

}  // namespace qkv
