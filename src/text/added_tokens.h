// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Splits a text at added tokens, as `tokenizers` does: first at tokens matched in the original text, then, in the parts
// between them, at tokens matched in the normalised text. Each match is the leftmost, and the longest at that position;
// one that does not count (a special token when they are text, or a single_word token inside a word) hides shorter ones
// within it. Immutable and thread-safe.
class AddedTokens {
 public:
  // with_special: whether special tokens count.
  AddedTokens(const std::vector<AddedToken>& tokens, bool with_special);

  // Receives either a non-empty part of the text without tokens (token is nullptr), or a token.
  using Take = std::function<void(std::string_view part, const AddedToken* token)>;
  using Normalise = std::function<std::string(std::string_view)>;
  // All of the text, in order. `normalise` (may be empty) transforms the parts between the first tokens; its result is
  // valid only until `take` returns.
  void split(std::string_view text, const Take& take, const Normalise& normalise = {}) const;

 private:
  struct Kind {
    std::vector<AddedToken> tokens;  // longest first
    std::array<bool, 256> starts{};  // possible first bytes of tokens
  };
  void split(const Kind& kind, std::string_view text, const Take& take) const;
  bool counts(const AddedToken& token, std::string_view text, std::size_t begin, std::size_t end) const;

  bool with_special_;
  Kind plain_, normalized_;
  Pattern word_, space_;
};

}  // namespace qkv
