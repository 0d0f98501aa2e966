// SPDX-License-Identifier: Apache-2.0
// Splits a text into the pieces within which byte pairs are merged.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace qkv {

// GPT-2's: contractions, words, numbers and punctuation with a leading space, and runs of spaces.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Patterns (in the syntax of `tokenizers`, src/text/oniguruma.h) in stages: the first splits the text into its matches
// and the parts between them, the next splits each of those, and so on. A byte that is not UTF-8 is a separate piece.
// The pieces, concatenated, are the text.
class Splitter {
 public:
  explicit Splitter(const std::vector<std::string>& patterns);  // throws std::invalid_argument
  using Take = std::function<void(std::string_view piece)>;
  void split(std::string_view text, const Take& take) const;

 private:
  using Matchers = std::vector<Pattern::Matcher>;
  void cut(std::string_view text, std::size_t stage, Matchers& matchers, const Take& take) const;

  std::vector<Pattern> stages_;
  std::vector<bool> gpt2_;  // [stages] whether the stage is kGpt2Pattern
};

}  // namespace qkv
