// SPDX-License-Identifier: Apache-2.0
#include "jinja/lexer.h"

#include <algorithm>

#include "jinja/marked_text.h"
#include "jinja/template.h"

namespace qkv::jinja {
namespace {

std::string with_line_ends(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      result += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      result += text[i];
    }
  }
  if (result.ends_with('\n')) result.pop_back();
  return result;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
         static_cast<unsigned char>(c) >= 128;
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(with_line_ends(text)) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    add(Token::end, "", at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, const std::string& reason) {
    place(at);
    throw TemplateError(line_, static_cast<int>(at - line_begin_) + 1, reason);
  }
  // Lines are counted on from the last place; places only go forward, but for errors.
  void place(std::size_t at) {
    if (at < counted_) counted_ = line_begin_ = 0, line_ = 1;
    for (; counted_ < at; ++counted_)
      if (text_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
  }
  void add(Token::Kind kind, std::string text, std::size_t at) {
    place(at);
    tokens_.push_back({kind, std::move(text), line_, static_cast<int>(at - line_begin_) + 1});
  }
  bool here(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }
  void skip_space() {
    while (at_ < text_.size()) {
      const CodePoint point = code_point(text_, at_);
      if (!is_space(point.value)) break;
      at_ += point.length;
    }
  }

  // Text up to a tag at `tag` with its sign.
  void add_data(std::size_t begin, std::size_t tag, char sign, bool variable) {
    std::size_t end = tag;
    if (sign == '-') {
      end = begin +
            stripped(MarkedText(std::string_view(text_).substr(begin, tag - begin)), nullptr, Side::right).bytes.size();
    } else if (sign != '+' && !variable && tag > begin) {
      const std::size_t newline = text_.rfind('\n', tag - 1);
      const bool found = newline != std::string::npos && newline >= begin;
      const std::size_t line = found ? newline + 1 : begin;
      if ((found || line_starting_) && line < tag &&
          stripped(MarkedText(std::string_view(text_).substr(line, tag - line)), nullptr, Side::right).bytes.empty())
        end = line;
    }
    if (end > begin) add(Token::data, text_.substr(begin, end - begin), begin);
  }

  char sign_here() {
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) return text_[at_++];
    return 0;
  }

  void data() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    for (;; ++tag) {
      tag = text_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= text_.size()) {
        add(Token::data, text_.substr(begin), begin);
        at_ = text_.size();
        return;
      }
      if (std::string_view("{%#").find(text_[tag + 1]) != std::string_view::npos) break;
    }
    const char kind = text_[tag + 1];
    at_ = tag + 2;
    const char sign = sign_here();
    add_data(begin, tag, sign, kind == '{');
    if (kind == '#') return comment(tag);
    if (kind == '%' && raw(tag)) return;
    add(kind == '%' ? Token::block_begin : Token::variable_begin, "", tag);
    code(kind == '%' ? "%}" : "}}", kind == '%', tag);
  }

  void after_end(char sign, bool trims) {
    line_starting_ = false;
    if (sign == '-') {
      const std::size_t before = at_;
      skip_space();
      line_starting_ = at_ > before && text_[at_ - 1] == '\n';
    } else if (sign != '+' && trims && here("\n")) {
      ++at_;
      line_starting_ = true;
    }
  }

  void comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) fail(tag, "expected #} after {#; found the end of the template");
    const char sign = end > at_ && (text_[end - 1] == '-' || text_[end - 1] == '+') ? text_[end - 1] : 0;
    at_ = end + 2;
    after_end(sign, true);
  }

  // {% NAME %} here, at_ behind its {% and sign: behind it then.
  bool tag_named(std::string_view name, bool trims) {
    const std::size_t before = at_;
    skip_space();
    if (here(name)) {
      at_ += name.size();
      skip_space();
      char sign = 0;
      if (here("-%}") || (trims && here("+%}"))) sign = text_[at_++];
      if (here("%}")) {
        at_ += 2;
        after_end(sign, trims);
        return true;
      }
    }
    at_ = before;
    return false;
  }

  bool raw(std::size_t tag) {
    if (!tag_named("raw", false)) return false;
    const std::size_t begin = at_;
    for (std::size_t end = text_.find("{%", at_); end != std::string::npos; end = text_.find("{%", end + 2)) {
      at_ = end + 2;
      const char sign = sign_here();
      const bool starting = line_starting_;
      if (!tag_named("endraw", true)) continue;
      const bool after = line_starting_;
      line_starting_ = starting;
      add_data(begin, end, sign, false);
      line_starting_ = after;
      return true;
    }
    fail(tag, "expected {% endraw %} after {% raw %}; found the end of the template");
  }

  void code(std::string_view close, bool block, std::size_t tag) {
    std::string open;  // brackets
    for (;;) {
      skip_space();
      if (at_ >= text_.size()) fail(tag, "expected " + std::string(close) + "; found the end of the template");
      if (open.empty()) {
        const std::size_t begin = at_;
        const bool signed_end = (text_[at_] == '-' || (block && text_[at_] == '+')) &&
                                std::string_view(text_).substr(at_ + 1).starts_with(close);
        if (signed_end || here(close)) {
          const char sign = signed_end ? text_[at_++] : 0;
          at_ += 2;
          add(block ? Token::block_end : Token::variable_end, "", begin);
          after_end(sign, block);
          return;
        }
      }
      token(open);
    }
  }

  void token(std::string& open) {
    const std::size_t begin = at_;
    const char c = text_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_digit(c)) return number();
    if (is_name(c)) {
      while (at_ < text_.size() && is_name(text_[at_])) ++at_;
      return add(Token::name, text_.substr(begin, at_ - begin), begin);
    }
    for (const std::string_view two : {"//", "**", "==", "!=", ">=", "<="})
      if (here(two)) {
        at_ += 2;
        return add(Token::symbol, std::string(two), begin);
      }
    if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
      fail(at_, std::string("expected an expression; found the character ") +
                    (c >= 32 && c < 127 ? std::string{'\'', c, '\''} : std::to_string(c)));
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c)
        fail(at_, std::string("expected ") +
                      (open.empty() ? "an open bracket before" : std::string{'\'', open.back(), '\''} + " instead of") +
                      " '" + c + "'; found none");
      open.pop_back();
    }
    ++at_;
    add(Token::symbol, std::string(1, c), begin);
  }

  void number() {
    const std::size_t begin = at_;
    const auto digits = [&] {
      while (at_ < text_.size() &&
             (is_digit(text_[at_]) || (text_[at_] == '_' && at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))))
        ++at_;
    };
    digits();
    bool real = false;
    const bool after_point = begin > 0 && text_[begin - 1] == '.';
    if (!after_point && at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      real = true;
      ++at_;
      digits();
    }
    if (!after_point && at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      std::size_t next = at_ + 1;
      if (next < text_.size() && (text_[next] == '+' || text_[next] == '-')) ++next;
      if (next < text_.size() && is_digit(text_[next])) {
        real = true;
        at_ = next;
        digits();
      }
    }
    std::string text = text_.substr(begin, at_ - begin);
    std::erase(text, '_');
    if (!real && text.size() > 1 && text[0] == '0' && text.find_first_not_of('0') != std::string::npos)
      fail(begin, "expected a number; found '" + text.substr(0, 40) + "'");
    add(real ? Token::number : Token::integer, std::move(text), begin);
  }

  void string(char quote) {
    const std::size_t begin = at_++;
    std::string result;
    for (;; ++at_) {
      if (at_ >= text_.size()) fail(begin, "expected the end of a string; found the end of the template");
      const char c = text_[at_];
      if (c == quote) break;
      if (c != '\\') {
        result += c;
        continue;
      }
      if (++at_ >= text_.size()) fail(begin, "expected the end of a string; found the end of the template");
      escape(result);
    }
    ++at_;
    add(Token::string, std::move(result), begin);
  }

  // at_ is at the character after the backslash, and at the last of the escape then.
  void escape(std::string& result) {
    const char c = text_[at_];
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    if (const std::size_t which = kFrom.find(c); which != std::string_view::npos) {
      result += kTo[which];
    } else if (c == '\n') {
    } else if (c >= '0' && c <= '7') {
      unsigned value = 0;
      std::size_t count = 0;
      for (; count < 3 && at_ + count < text_.size() && text_[at_ + count] >= '0' && text_[at_ + count] <= '7'; ++count)
        value = value * 8 + static_cast<unsigned>(text_[at_ + count] - '0');
      at_ += count - 1;
      append_utf8(result, value);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      char32_t value = hexadecimal(c == 'x' ? 2 : c == 'u' ? 4 : 8);
      if (value >= 0xD800 && value < 0xDC00 && c == 'u' && text_.compare(at_ + 1, 2, "\\u") == 0) {
        at_ += 2;
        const char32_t low = hexadecimal(4);
        if (low < 0xDC00 || low > 0xDFFF) fail(at_, "expected a pair of surrogates; found one alone");
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        fail(at_, "expected a character; found an escape of none");
      append_utf8(result, value);
    } else if (c == 'N') {
      fail(at_, "expected an escape other than \\N; found it");
    } else {
      result += '\\';
      result += c;
    }
  }

  char32_t hexadecimal(std::size_t digits) {
    char32_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = ++at_ < text_.size() ? text_[at_] : ' ';
      const std::size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | (c >= 'A' ? 32 : 0)));
      if (digit == std::string_view::npos)
        fail(std::min(at_, text_.size()), "expected hexadecimal digits in an escape; found others");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }

  std::string text_;
  std::size_t at_ = 0, counted_ = 0, line_begin_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokens_of(std::string_view text) { return Lexer(text).run(); }

}  // namespace qkv::jinja
