// SPDX-License-Identifier: Apache-2.0
// Finding added tokens in a text.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Tokens that are cut out of a text, as `tokenizers` does it: first those that are found in the text as it stands,
// then, in what lies between, those that are found in the normalised text. Each time the leftmost match, of those that
// begin there the longest; one that does not count (a special token where they are text, one that must stand alone and
// does not) hides the shorter ones in it. Immutable once made, so any number of threads may use one.
class AddedTokens {
 public:
  // with_special: whether special tokens count.
  AddedTokens(const std::vector<AddedToken>& tokens, bool with_special);

  // Either part of the text that is no token (then token is nullptr and part is not empty), or a token.
  using Take = std::function<void(std::string_view part, const AddedToken* token)>;
  using Normalise = std::function<std::string(std::string_view)>;
  // All of the text, in order. `normalise` (may be empty) changes the parts between the first tokens; what it makes is
  // not kept after `take` has returned.
  void split(std::string_view text, const Take& take, const Normalise& normalise = {}) const;

 private:
  struct Kind {
    std::vector<AddedToken> tokens;  // the longest first
    std::array<bool, 256> starts{};  // bytes that a token begins with
  };
  void split(const Kind& kind, std::string_view text, const Take& take) const;
  bool counts(const AddedToken& token, std::string_view text, std::size_t begin, std::size_t end) const;

  bool with_special_;
  Kind plain_, normalized_;
  Pattern word_, space_;
};

}  // namespace qkv
