// SPDX-License-Identifier: Apache-2.0
#include "text/oniguruma.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

namespace qkv {
namespace {

// Oniguruma's \w. Its complement cannot be written inside [...].
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordClass = R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";
constexpr std::string_view kNoWordClass = R"([^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}])";

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)); }
bool is_hex(char c) { return std::isxdigit(static_cast<unsigned char>(c)); }

class Translator {
 public:
  explicit Translator(std::string_view expression) : text_(expression) {}

  std::string run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\\')
        escape();
      else if (in_class_)
        class_character(c);
      else
        character(c);
    }
    if (in_class_) refuse(text_.size(), "an unterminated class");
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::size_t at, const std::string& what) const {
    throw std::invalid_argument("[tokenizer] expected a pattern with the same meaning in PCRE2; found " + what +
                                " at " + std::to_string(at) + " of " + std::string(text_));
  }
  char peek(std::size_t ahead) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  void pass(std::size_t count) {
    result_ += text_.substr(at_, count);
    at_ += count;
  }
  void put(std::string_view text, std::size_t consumed) {
    result_ += text;
    at_ += consumed;
  }

  void escape() {
    const char c = peek(1);
    if (at_ + 1 == text_.size()) refuse(at_, "a backslash at the end");
    if (c == 's') return put(R"(\p{White_Space})", 2);
    if (c == 'S') return put(R"(\P{White_Space})", 2);
    if (c == 'd') return put(R"(\p{Nd})", 2);
    if (c == 'D') return put(R"(\P{Nd})", 2);
    if (c == 'v') return put(R"(\x0b)", 2);
    if (c == 'w') return put(in_class_ ? kWord : kWordClass, 2);
    if (c == 'W' && !in_class_) return put(kNoWordClass, 2);
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return code_point();
    const bool same = c == 'r' || c == 'n' || c == 't' || c == 'f' || c == 'a' || c == 'e' ||
                      ((c == 'A' || c == 'z' || c == 'Z') && !in_class_);
    if (!same && std::isalnum(static_cast<unsigned char>(c))) refuse(at_, std::string("\\") + c);
    pass(2);
  }

  // \p{L}, \p{Lu}; any other name is a script, which PCRE2 would read as script extensions.
  void property() {
    const std::size_t end = text_.find('}', at_);
    if (peek(2) != '{' || end == std::string_view::npos) refuse(at_, "a property without {name}");
    const std::string_view name = text_.substr(at_ + 3, end - at_ - 3);
    if (name.empty() || !std::all_of(name.begin(), name.end(), [](char c) { return is_letter(c) || c == '_'; }))
      refuse(at_, "the property '" + std::string(name) + "'");
    if (name.size() <= 2) return pass(end + 1 - at_);
    result_ += peek(1) == 'p' ? "\\p{sc:" : "\\P{sc:";
    put(name, end - at_);
    pass(1);
  }

  void code_point() {
    if (peek(1) == 'u') {
      for (std::size_t i = 2; i < 6; ++i)
        if (!is_hex(peek(i))) refuse(at_, "\\u without four digits");
      result_ += "\\x{";
      put(text_.substr(at_ + 2, 4), 6);
      result_ += '}';
      return;
    }
    if (peek(2) == '{') {
      const std::size_t end = text_.find('}', at_);
      const std::string_view digits = text_.substr(at_ + 3, end == text_.npos ? 0 : end - at_ - 3);
      if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_hex)) refuse(at_, "\\x{...}");
      return pass(end + 1 - at_);
    }
    if (!is_hex(peek(2)) || !is_hex(peek(3)) || peek(2) > '7') refuse(at_, "\\x above ASCII");
    pass(4);
  }

  void class_character(char c) {
    if (c == '[') refuse(at_, "a nested class");
    if (c == '&' && peek(1) == '&') refuse(at_, "&&");
    if (c == ']') in_class_ = false;
    pass(1);
  }

  void character(char c) {
    if (c == '[') {
      const std::size_t head = peek(1) == '^' ? 2 : 1;
      if (peek(head) == ']') refuse(at_, "an empty class");
      in_class_ = true;
      return pass(head);
    }
    if (c == '^') return put("(?m:^)", 1);
    if (c == '$') return put("(?m:$)", 1);
    if (c == '(' && peek(1) == '?') return group();
    if (c == '(' && peek(1) == '*') refuse(at_, "(*");
    if (c == '{' && peek(1) == ',') refuse(at_, "{,n}");
    if (c == '}' && peek(1) == '+') refuse(at_, "{n,m}+");
    pass(1);
  }

  void group() {
    for (const std::string_view head : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)", "(?-i:", "(?-i)"})
      if (text_.substr(at_).starts_with(head)) return pass(head.size());
    refuse(at_, std::string(text_.substr(at_, 3)));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string result_;
};

}  // namespace

std::string from_oniguruma(std::string_view expression) { return Translator(expression).run(); }

}  // namespace qkv
