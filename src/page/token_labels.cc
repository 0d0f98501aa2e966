// SPDX-License-Identifier: Apache-2.0
#include "page/token_labels.h"

#include <cstddef>

#include "page/text.h"

namespace qkv {
namespace {

constexpr std::string_view kDigits[] = {"¹", "²", "³", "⁴"};

std::string in_brackets(char byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const auto value = static_cast<unsigned char>(byte);
  return "⟨" + std::string{kHex[value >> 4], kHex[value & 15]} + "⟩";
}

}  // namespace

std::vector<TokenLabel> token_labels(const std::vector<std::string>& tokens) {
  std::string all;
  std::vector<std::size_t> owner;  // [bytes] the token of each byte
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    all += tokens[t];
    owner.insert(owner.end(), tokens[t].size(), t);
  }
  std::vector<TokenLabel> labels(tokens.size());
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t length = character_length(std::string_view(all).substr(at));
    const std::string shown = length == 0 ? in_brackets(all[at]) : all.substr(at, length);
    labels[owner[at]].text += shown;
    std::size_t part = 0;
    const bool cut = length > 1 && owner[at] != owner[at + length - 1];
    for (std::size_t i = 0; i < (length == 0 ? 1 : length); ++i) {
      if (i > 0 && owner[at + i] == owner[at + i - 1]) continue;
      labels[owner[at + i]].label += cut ? shown + std::string(kDigits[part++]) : shown;
    }
    at += length == 0 ? 1 : length;
  }
  return labels;
}

std::string token_label(std::string_view token) {
  std::string label;
  while (!token.empty()) {
    const std::size_t length = character_length(token);
    label += length == 0 ? in_brackets(token[0]) : std::string(token.substr(0, length));
    token.remove_prefix(length == 0 ? 1 : length);
  }
  return label;
}

}  // namespace qkv
