// SPDX-License-Identifier: Apache-2.0
// The pieces of a text that byte pairs never reach across.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/pattern.h"

namespace qkv {

// GPT-2's: contractions, words, numbers and signs with the space before them, and runs of spaces.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Patterns (as `tokenizers` writes them, src/text/oniguruma.h) in stages: the first cuts the text into its matches and
// what lies between them, the next cuts each of those, and so on. A byte that is no UTF-8 is a piece of its own.
// Nothing is lost: the pieces, joined, are the text.
class Splitter {
 public:
  explicit Splitter(const std::vector<std::string>& patterns);  // throws std::invalid_argument
  using Take = std::function<void(std::string_view piece)>;
  void split(std::string_view text, const Take& take) const;

 private:
  using Matchers = std::vector<Pattern::Matcher>;
  void cut(std::string_view text, std::size_t stage, Matchers& matchers, const Take& take) const;

  std::vector<Pattern> stages_;
  std::vector<bool> gpt2_;  // [stages] whether a stage is kGpt2Pattern
};

}  // namespace qkv
