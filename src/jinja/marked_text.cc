// SPDX-License-Identifier: Apache-2.0
#include "jinja/marked_text.h"

#include <utf8proc.h>

#include <algorithm>

namespace qkv::jinja {

MarkedText MarkedText::part(std::size_t begin, std::size_t end) const {
  MarkedText result;
  result.bytes = bytes.substr(begin, end - begin);
  result.marks = marks.substr(begin, end - begin);
  return result;
}

CodePoint code_point(std::string_view text, std::size_t at) noexcept {
  utf8proc_int32_t value = 0;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data() + at);
  const auto left = static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size() - at, 4));
  const utf8proc_ssize_t length = utf8proc_iterate(bytes, left, &value);
  if (length <= 0) return {0xFFFD, 1};
  return {static_cast<char32_t>(value), static_cast<std::size_t>(length)};
}

void append_utf8(std::string& to, char32_t value) {
  if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) value = 0xFFFD;
  utf8proc_uint8_t bytes[4];
  to.append(reinterpret_cast<char*>(bytes),
            static_cast<std::size_t>(utf8proc_encode_char(static_cast<utf8proc_int32_t>(value), bytes)));
}

std::vector<std::size_t> boundaries(std::string_view text) {
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < text.size(); i += code_point(text, i).length) at.push_back(i);
  at.push_back(text.size());
  return at;
}

std::size_t length_of(std::string_view text) noexcept {
  std::size_t count = 0;
  for (std::size_t i = 0; i < text.size(); i += code_point(text, i).length) ++count;
  return count;
}

bool is_space(char32_t c) noexcept {
  return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

MarkedText stripped(const MarkedText& text, const std::string* characters, Side side) {
  const std::vector<std::size_t> at = boundaries(text.bytes);
  const auto goes = [&](std::size_t i) {
    const std::string_view one = std::string_view(text.bytes).substr(at[i], at[i + 1] - at[i]);
    return characters ? characters->find(one) != std::string::npos : is_space(code_point(text.bytes, at[i]).value);
  };
  std::size_t begin = 0, end = at.size() - 1;
  if (side != Side::right)
    while (begin < end && goes(begin)) ++begin;
  if (side != Side::left)
    while (end > begin && goes(end - 1)) --end;
  return text.part(at[begin], at[end]);
}

MarkedText replaced(const MarkedText& text, std::string_view from, const MarkedText& to, long long count) {
  MarkedText result;
  std::size_t taken = 0;
  if (from.empty()) {  // before each character and at the end
    for (const std::size_t at : boundaries(text.bytes)) {
      result.add(text.part(taken, at));
      taken = at;
      if (count-- == 0) break;
      result.add(to);
    }
  } else {
    for (std::size_t at; count-- != 0 && (at = text.bytes.find(from, taken)) != std::string::npos;) {
      result.add(text.part(taken, at));
      result.add(to);
      taken = at + from.size();
    }
  }
  result.add(text.part(taken, text.bytes.size()));
  return result;
}

MarkedText in_case(const MarkedText& text, Case how) {
  MarkedText result;
  bool first = true, within = false;  // a word
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint point = code_point(text.bytes, i);
    const auto value = static_cast<utf8proc_int32_t>(point.value);
    const bool invalid = point.value == 0xFFFD && point.length == 1;
    const bool up = how == Case::upper || (how == Case::capitalized && first) || (how == Case::title && !within);
    std::string changed;
    if (!invalid && up && value == 0xDF)
      changed.append({'S', how == Case::upper ? 'S' : 's'});
    else if (invalid)
      changed.append(1, text.bytes[i]);
    else
      append_utf8(changed, static_cast<char32_t>(how == Case::upper ? utf8proc_toupper(value)
                                                 : up               ? utf8proc_totitle(value)
                                                                    : utf8proc_tolower(value)));
    result.add(changed, text.mark_at(i));
    const utf8proc_category_t category = utf8proc_category(value);
    within = category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
    first = false;
    i += point.length;
  }
  return result;
}

}  // namespace qkv::jinja
