// SPDX-License-Identifier: Apache-2.0
// Escapes text for HTML and JSON. Invalid UTF-8 and control characters other than tab and newline become U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace qkv {

// The length of the UTF-8 character at the start of `text`, which is not empty; 0 if there is none (the Unicode
// Standard, table 3-7).
std::size_t character_length(std::string_view text) noexcept;

// For HTML text and attributes in double quotes.
std::string html_text(std::string_view text);

// A JSON string with quotes, safe inside <script>: it has no '<', '>', '&', U+2028 or U+2029.
std::string json_text(std::string_view text);

// A JSON number of seven digits ("0.1234568"); null if not finite.
std::string json_number(double value);

}  // namespace qkv
