// SPDX-License-Identifier: Apache-2.0
#include "page/text.h"

#include <charconv>
#include <cmath>

namespace qkv {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

bool is_control(unsigned char c) noexcept { return (c < 0x20 && c != '\t' && c != '\n') || c == 0x7F; }

// Calls put(piece) with each allowed character, or with U+FFFD instead.
template <class Put>
void each_character(std::string_view text, const Put& put) {
  while (!text.empty()) {
    const std::size_t length = character_length(text);
    const bool fits = length > 1 || (length == 1 && !is_control(static_cast<unsigned char>(text[0])));
    put(fits ? text.substr(0, length) : kReplacement);
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace

std::size_t character_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  unsigned least = 0x80,
           most = 0xBF;  // of the second byte: excludes overlong forms, surrogates and code points above U+10FFFF
  if (first == 0xE0) least = 0xA0;
  if (first == 0xED) most = 0x9F;
  if (first == 0xF0) least = 0x90;
  if (first == 0xF4) most = 0x8F;
  if (byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

std::string html_text(std::string_view text) {
  std::string safe;
  safe.reserve(text.size() + text.size() / 8);
  each_character(text, [&](std::string_view piece) {
    switch (piece[0]) {
      case '&':
        safe += "&amp;";
        break;
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '"':
        safe += "&quot;";
        break;
      case '\'':
        safe += "&#39;";
        break;
      default:
        safe += piece;
    }
  });
  return safe;
}

std::string json_text(std::string_view text) {
  std::string safe = "\"";
  safe.reserve(text.size() + text.size() / 8 + 2);
  each_character(text, [&](std::string_view piece) {
    if (piece == "\xE2\x80\xA8" || piece == "\xE2\x80\xA9") {  // line terminators in JavaScript
      safe += piece[2] == '\xA8' ? "\\u2028" : "\\u2029";
      return;
    }
    switch (piece[0]) {
      case '"':
      case '\\':
        safe += '\\';
        safe += piece;
        break;
      case '\n':
        safe += "\\n";
        break;
      case '\t':
        safe += "\\t";
        break;
      case '<':
        safe += "\\u003c";
        break;
      case '>':
        safe += "\\u003e";
        break;
      case '&':
        safe += "\\u0026";
        break;
      default:
        safe += piece;
    }
  });
  return safe += '"';
}

std::string json_number(double value) {
  if (!std::isfinite(value)) return "null";
  char digits[40];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::general, 7);
  return error == std::errc() ? std::string(digits, end) : "null";
}

}  // namespace qkv
