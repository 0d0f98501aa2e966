// SPDX-License-Identifier: Apache-2.0
// Finding added tokens in a text.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "text/pattern.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Immutable once made, so any number of threads may use one.
class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<AddedToken>& tokens, bool with_special);

  struct Found {
    std::size_t begin, end;   // what is taken from the text, spaces of lstrip and rstrip included
    const AddedToken* token;  // nullptr: none, and begin == end == the text's size
  };
  // The leftmost token from byte `from` on, the longest of those that begin there.
  Found find(std::string_view text, std::size_t from) const;

 private:
  bool alone(std::string_view text, std::size_t begin, std::size_t end) const;

  std::vector<AddedToken> tokens_;  // the longest first
  std::array<bool, 256> starts_{};  // bytes that a token begins with
  Pattern word_, space_;
};

}  // namespace qkv
