// SPDX-License-Identifier: Apache-2.0
// Strings whose bytes remember who wrote them. Positions and lengths are in code points, as in Python.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace qkv::jinja {

enum class Mark : char { written = 0, said = 1, answered = 2 };  // by the template; in a message; in an answer

struct MarkedText {
  std::string bytes, marks;  // of equal length

  MarkedText() = default;
  explicit MarkedText(std::string_view text, Mark mark = Mark::written)
      : bytes(text), marks(text.size(), static_cast<char>(mark)) {}
  void add(const MarkedText& other) { bytes += other.bytes, marks += other.marks; }
  void add(std::string_view text, Mark mark = Mark::written) {
    bytes += text;
    marks.append(text.size(), static_cast<char>(mark));
  }
  MarkedText part(std::size_t begin, std::size_t end) const;  // in bytes
  Mark mark_at(std::size_t byte) const { return byte < marks.size() ? static_cast<Mark>(marks[byte]) : Mark::written; }
};

// The code point at a byte, and its bytes; of what is not UTF-8, one byte.
struct CodePoint {
  char32_t value;
  std::size_t length;
};
CodePoint code_point(std::string_view text, std::size_t at) noexcept;
void append_utf8(std::string& to, char32_t value);
std::vector<std::size_t> boundaries(std::string_view text);  // where code points begin, and the end
std::size_t length_of(std::string_view text) noexcept;       // in code points
bool is_space(char32_t value) noexcept;                      // as Python's str.isspace

enum class Side { left, right, both };
// Without the characters of a set at its ends; nullptr: without white space.
MarkedText stripped(const MarkedText& text, const std::string* characters, Side side);
MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, long long count);
enum class Case { upper, lower, title, capitalized };
MarkedText in_case(const MarkedText& text, Case how);

}  // namespace qkv::jinja
