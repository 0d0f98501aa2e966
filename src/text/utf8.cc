// SPDX-License-Identifier: Apache-2.0
#include "text/utf8.h"

namespace qkv {

Utf8Step utf8_step(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Step::valid, 1};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Step::invalid, 1};
  // Four of the lead bytes restrict the second byte: no overlong forms, no surrogates, nothing above U+10FFFF.
  const unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Step::unfinished, i};
    if (i == 1 ? byte(i) < low || byte(i) > high : (byte(i) & 0xC0) != 0x80) return {Utf8Step::invalid, i};
  }
  return {Utf8Step::valid, length};
}

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    if (step.kind != Utf8Step::valid) return false;
    text.remove_prefix(step.length);
  }
  return true;
}

std::string_view first_character(std::string_view text) noexcept {
  if (text.empty()) return {};
  const Utf8Step step = utf8_step(text);
  return text.substr(0, step.kind == Utf8Step::valid ? step.length : 1);
}

std::string_view last_character(std::string_view text) noexcept {
  for (std::size_t length = 1; length <= 4 && length <= text.size(); ++length) {
    const std::string_view tail = text.substr(text.size() - length);
    const Utf8Step step = utf8_step(tail);
    if (step.kind == Utf8Step::valid && step.length == length) return tail;
  }
  return text.substr(text.empty() ? 0 : text.size() - 1);
}

}  // namespace qkv
