// SPDX-License-Identifier: Apache-2.0
// Regular expressions over UTF-8 with Unicode character classes. The only user of PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace qkv {

// Compiled once; thread-safe if each thread uses its own Matcher.
class Pattern {
 public:
  explicit Pattern(const std::string& expression);  // throws std::invalid_argument with the position of the error
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  const std::string& expression() const noexcept { return expression_; }

  struct Match {
    std::size_t begin, end;  // in bytes; begin == end: no match
  };
  class Matcher {
   public:
    explicit Matcher(const Pattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;
    // The first non-empty match from byte `from` on. `text` must be valid UTF-8 and `from` at the start of a character.
    // Throws std::invalid_argument if the expression exceeds the backtracking limit.
    Match find(std::string_view text, std::size_t from);

   private:
    struct State;
    std::unique_ptr<State> state_;
  };

 private:
  struct Code;
  std::string expression_;
  std::unique_ptr<Code> code_;
};

}  // namespace qkv
