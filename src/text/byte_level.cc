// SPDX-License-Identifier: Apache-2.0
#include "text/byte_level.h"

#include <array>

namespace qkv {
namespace {

constexpr int kCharacters = 0x144;  // 256 + 68: all characters used are below

struct Tables {
  std::array<int, 256> character{};     // byte -> character
  std::array<int, kCharacters> byte{};  // character -> byte, or -1
};

constexpr Tables make_tables() {
  Tables tables;
  tables.byte.fill(-1);
  int next = 0x100;
  for (int b = 0; b < 256; ++b) {
    const bool itself = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    const int c = itself ? b : next++;
    tables.character[static_cast<std::size_t>(b)] = c;
    tables.byte[static_cast<std::size_t>(c)] = b;
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const int c = kTables.character[static_cast<unsigned char>(byte)];
    if (c >= 0x80) text += static_cast<char>(0xC0 | c >> 6);
    text += static_cast<char>(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
  }
  return text;
}

std::optional<std::string> from_byte_level(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    int c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {  // only two-byte characters are in the table
      if ((c & 0xE0) != 0xC0 || i + 1 == text.size() || (text[i + 1] & 0xC0) != 0x80) return std::nullopt;
      c = (c & 0x1F) << 6 | (text[++i] & 0x3F);
    }
    if (c >= kCharacters || kTables.byte[static_cast<std::size_t>(c)] < 0) return std::nullopt;
    bytes += static_cast<char>(kTables.byte[static_cast<std::size_t>(c)]);
  }
  return bytes;
}

}  // namespace qkv
