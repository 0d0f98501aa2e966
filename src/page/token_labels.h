// SPDX-License-Identifier: Apache-2.0
// Labels of single tokens, and the text that each token contributes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Tokens are bytes, so a character may span several. The `text` of all tokens in order is the whole text: a character
// belongs to the token with its first byte. `label` distinguishes the parts: a character of three tokens is X¹, X² and
// X³. Bytes that are not UTF-8 are ⟨FF⟩ in both.
struct TokenLabel {
  std::string text;
  std::string label;
};
std::vector<TokenLabel> token_labels(const std::vector<std::string>& tokens);

// One token without context: part of a character is ⟨E8⟩.
std::string token_label(std::string_view token);

}  // namespace qkv
