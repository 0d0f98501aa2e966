// SPDX-License-Identifier: Apache-2.0
// Regular expressions over UTF-8 with Unicode's letters, digits and spaces. The only user of PCRE2.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace qkv {

// Compiled once; any number of threads may use one, each with a Matcher of its own.
class Pattern {
 public:
  explicit Pattern(const std::string& expression);  // throws std::invalid_argument with the place of the mistake
  ~Pattern();
  Pattern(Pattern&&) noexcept;
  Pattern& operator=(Pattern&&) noexcept;

  const std::string& expression() const noexcept { return expression_; }

  struct Match {
    std::size_t begin, end;  // bytes; begin == end: there is no match
  };
  class Matcher {
   public:
    explicit Matcher(const Pattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;
    // The first match of at least one character from byte `from` on. `text` must be valid UTF-8 and `from` must be
    // where a character begins. Throws std::invalid_argument if the expression backtracks without end.
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
