// SPDX-License-Identifier: Apache-2.0
// Quotes names from files for one-line messages.
#pragma once

#include <string>
#include <string_view>

namespace qkv {

// In single quotes, at most 80 bytes, control characters as '?'. UTF-8 passes through.
inline std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string shown = "'";
  for (char c : text.substr(0, kLongest)) shown += static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? '?' : c;
  return shown + (text.size() > kLongest ? "...'" : "'");
}

}  // namespace qkv
