// SPDX-License-Identifier: Apache-2.0
// UTF-8 as bytes that may be anything.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv {

struct Utf8Step {
  enum Kind { valid, invalid, unfinished } kind;
  // valid: the bytes of the character. invalid: the bytes that can never become one (one U+FFFD stands for them).
  // unfinished: all that is left, which more bytes could complete.
  std::size_t length;
};

// What stands at the start of `text`, which must not be empty: The Unicode Standard 15.0, table 3-7, and its "maximal
// subparts" for what is invalid.
Utf8Step utf8_step(std::string_view text) noexcept;

bool is_utf8(std::string_view text) noexcept;

// The first and the last character of a text (of one byte where it is no UTF-8); empty for an empty text.
std::string_view first_character(std::string_view text) noexcept;
std::string_view last_character(std::string_view text) noexcept;

}  // namespace qkv
