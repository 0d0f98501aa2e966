// SPDX-License-Identifier: Apache-2.0
// What a token is called where it stands alone, and what it adds to the text it is part of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Tokens are bytes, so a character may be cut into several. `text` of all tokens in a row is the text: a character
// belongs to the token with its first byte. `label` distinguishes the parts: a character of three tokens is X¹, X² and
// X³. Bytes that are no UTF-8 are ⟨FF⟩ in both.
struct TokenLabel {
  std::string text;
  std::string label;
};
std::vector<TokenLabel> token_labels(const std::vector<std::string>& tokens);

// One token without its neighbours: part of a character is ⟨E8⟩.
std::string token_label(std::string_view token);

}  // namespace qkv
