// SPDX-License-Identifier: Apache-2.0
#include "qkv/display_text.h"

#include <utf8proc.h>

#include <cstdio>

namespace qkv {
namespace {

struct Character {
  char32_t code;      // code point, or the byte itself
  std::size_t bytes;  // length in bytes
  bool whole;         // false: not the start of a UTF-8 character
};

// The first character of non-empty bytes. Overlong forms, surrogates and other invalid bytes are not whole.
Character front_of(std::string_view bytes) {
  utf8proc_int32_t code = 0;
  const auto* data = reinterpret_cast<const utf8proc_uint8_t*>(bytes.data());
  const utf8proc_ssize_t size = utf8proc_iterate(data, static_cast<utf8proc_ssize_t>(bytes.size()), &code);
  if (size < 1) return {*data, 1, false};
  return {static_cast<char32_t>(code), static_cast<std::size_t>(size), true};
}

struct Range {
  char32_t first, last;
};

template <std::size_t N>
bool within(const Range (&ranges)[N], char32_t code) {
  for (const Range& range : ranges)
    if (code >= range.first && code <= range.last) return true;
  return false;
}

// Control and format characters, shown as bytes.
constexpr Range kUnprintable[] = {{0x00, 0x1F},     {0x7F, 0x9F},      {0xAD, 0xAD},     {0x61C, 0x61C},
                                  {0x200B, 0x200F}, {0x2028, 0x202E},  {0x2060, 0x206F}, {0xFEFF, 0xFEFF},
                                  {0xFFF9, 0xFFFB}, {0xE0000, 0xE007F}};
constexpr Range kWide[] = {{0x1100, 0x115F},  {0x2E80, 0x303E},   {0x3041, 0xA4CF},   {0xA960, 0xA97C},
                           {0xAC00, 0xD7A3},  {0xF900, 0xFAFF},   {0xFE30, 0xFE6F},   {0xFF00, 0xFF60},
                           {0xFFE0, 0xFFE6},  {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF}, {0x1F900, 0x1FAFF},
                           {0x20000, 0x3FFFD}};
constexpr Range kCombining[] = {{0x300, 0x36F},   {0x483, 0x489},   {0x591, 0x5BD},   {0x610, 0x61A},
                                {0x64B, 0x65F},   {0x93C, 0x93C},   {0x941, 0x948},   {0x94D, 0x94D},
                                {0xE31, 0xE31},   {0xE34, 0xE3A},   {0xE47, 0xE4E},   {0x1AB0, 0x1AFF},
                                {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}, {0xFE20, 0xFE2F}};

std::size_t width_of(char32_t code) { return within(kCombining, code) ? 0 : within(kWide, code) ? 2 : 1; }

}  // namespace

std::string token_text(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Character c = front_of(bytes);
    if (c.code == ' ')
      text += "␣";
    else if (c.code == '\n')
      text += "\\n";
    else if (c.code == '\t')
      text += "\\t";
    else if (c.whole && !within(kUnprintable, c.code))
      text.append(bytes.substr(0, c.bytes));
    else
      for (std::size_t i = 0; i < c.bytes; ++i) {
        char hex[5];
        std::snprintf(hex, sizeof hex, "\\x%02X", static_cast<unsigned char>(bytes[i]));
        text += hex;
      }
    bytes.remove_prefix(c.bytes);
  }
  return text;
}

std::size_t text_columns(std::string_view text) {
  std::size_t count = 0;
  while (!text.empty()) {
    const Character c = front_of(text);
    count += width_of(c.code);
    text.remove_prefix(c.bytes);
  }
  return count;
}

namespace {

// The longest prefix of the text that fits; its columns in `taken`.
std::string_view fitting(std::string_view text, std::size_t width, std::size_t& taken) {
  std::size_t end = 0;
  for (taken = 0; end < text.size();) {
    const Character c = front_of(text.substr(end));
    if (taken + width_of(c.code) > width) break;
    taken += width_of(c.code);
    end += c.bytes;
  }
  return text.substr(0, end);
}

std::string cut(std::string_view text, std::size_t width, std::size_t& taken) {
  taken = text_columns(text);
  if (taken <= width) return std::string(text);
  std::string shorter(fitting(text, width - 1, taken));
  ++taken;
  return shorter + "…";
}

}  // namespace

std::string left_aligned(std::string_view text, std::size_t width) {
  std::size_t taken = 0;
  const std::string shown = cut(text, width, taken);
  return shown + std::string(width - taken, ' ');
}

std::string right_aligned(std::string_view text, std::size_t width) {
  std::size_t taken = 0;
  const std::string shown = cut(text, width, taken);
  return std::string(width - taken, ' ') + shown;
}

std::string with_commas(std::string digits) {
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

}  // namespace qkv
