// SPDX-License-Identifier: Apache-2.0
#include "text/gpt2_split.h"

#include <array>
#include <cstdint>

namespace qkv {
namespace {

enum Kind : std::uint8_t { kLetter, kDigit, kSpace, kSign, kWide };

constexpr std::array<Kind, 256> kinds() {
  std::array<Kind, 256> table{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const bool letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z');
    const bool space = byte == ' ' || (byte >= '\t' && byte <= '\r');
    table[byte] = byte >= 0x80                 ? kWide
                  : letter                     ? kLetter
                  : space                      ? kSpace
                  : byte >= '0' && byte <= '9' ? kDigit
                                               : kSign;
  }
  return table;
}
constexpr std::array<Kind, 256> kKinds = kinds();

Kind kind_at(std::string_view text, std::size_t at) noexcept { return kKinds[static_cast<unsigned char>(text[at])]; }

// End of a contraction ('s 't 'm 'd 're 've 'll) whose apostrophe is at `at`; 0 if there is none.
std::size_t contraction_end(std::string_view text, std::size_t at) noexcept {
  const char first = at + 1 < text.size() ? text[at + 1] : '\0';
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  const char second = at + 2 < text.size() ? text[at + 2] : '\0';
  const bool two =
      (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l');
  return two ? at + 3 : 0;
}

}  // namespace

std::size_t gpt2_piece_end(std::string_view text, std::size_t at) noexcept {
  if (text[at] == '\'') {
    if (const std::size_t end = contraction_end(text, at)) return end;
  }
  // A run of one kind, after an optional space.
  std::size_t first = at;
  if (text[at] == ' ' && at + 1 < text.size() && kind_at(text, at + 1) != kSpace) ++first;
  const Kind kind = kind_at(text, first);
  if (kind == kWide) return 0;
  std::size_t end = first + 1;
  while (end < text.size() && kind_at(text, end) == kind) ++end;
  if (end < text.size() && kind_at(text, end) == kWide) return 0;
  // The last of several spaces belongs to the next piece.
  if (kind == kSpace && end < text.size() && end - at > 1) --end;
  return end;
}

}  // namespace qkv
