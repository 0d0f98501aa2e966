// SPDX-License-Identifier: Apache-2.0
// Decodes UTF-8 from arbitrary bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv {

struct Utf8Step {
  enum Kind { valid, invalid, unfinished } kind;
  // valid: the bytes of the character. invalid: bytes that cannot start a character (replaced by one U+FFFD).
  // unfinished: all remaining bytes, which more bytes could complete.
  std::size_t length;
};

// The unit at the start of `text`, which must not be empty: The Unicode Standard 15.0, table 3-7, with its "maximal
// subparts" for invalid bytes.
Utf8Step utf8_step(std::string_view text) noexcept;

bool is_utf8(std::string_view text) noexcept;

// The first and the last character of a text (a single byte where it is not UTF-8); empty for an empty text.
std::string_view first_character(std::string_view text) noexcept;
std::string_view last_character(std::string_view text) noexcept;

}  // namespace qkv
