// SPDX-License-Identifier: Apache-2.0
#include "train/json_lines.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <nlohmann/json.hpp>
#include <vector>

namespace qkv {
namespace {

using Json = nlohmann::json;

// Parses a line as a stream and extracts the string of one field.
class FieldReader final : public nlohmann::json_sax<Json> {
 public:
  explicit FieldReader(const std::string& field) : field_(field) {}

  // Empty if there is no error.
  const std::string& fault() const noexcept { return fault_; }
  std::size_t fault_at() const noexcept { return fault_at_; }
  bool invalid() const noexcept { return invalid_; }  // the fault is one of JSON itself
  bool found() const noexcept { return found_; }
  std::string& text() noexcept { return text_; }
  // "'title' and 'body'": the fields of the line, for a message.
  std::string fields() const {
    if (names_.empty()) return "none";
    std::string list;
    for (std::size_t i = 0; i < names_.size(); ++i)
      list += (i == 0 ? "'" : i + 1 < names_.size() ? ", '" : " and '") + names_[i].substr(0, 40) + "'";
    return list;
  }

  bool null() override { return other(); }
  bool boolean(bool) override { return other(); }
  bool number_integer(number_integer_t) override { return other(); }
  bool number_unsigned(number_unsigned_t) override { return other(); }
  bool number_float(number_float_t, const string_t&) override { return other(); }
  bool string(string_t& value) override {
    if (!wanted_) return depth_ > 0 || other();
    text_.swap(value);
    wanted_ = false;
    return found_ = true;
  }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return (depth_ == 0 || other()) && enter(); }
  bool start_array(std::size_t) override { return other() && enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (depth_ == 1 && names_.size() < 8) names_.push_back(name);
    wanted_ = depth_ == 1 && name == field_;
    return !(wanted_ && found_) || fail("the field '" + field_ + "' occurs twice");
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fault_at_ = position > 0 ? position - 1 : 0;
    invalid_ = true;
    return fail("the line is not valid JSON");
  }

 private:
  bool enter() {
    if (++depth_ > kDeepest) return fail("is nested deeper than 64 objects and lists");
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }
  // A value that is not a string where an object or the field's string is expected.
  bool other() {
    if (depth_ == 0) return fail("expected an object on each line");
    return !wanted_ || fail("expected the field '" + field_ + "' to be a string");
  }
  bool fail(std::string what) {
    if (fault_.empty()) fault_ = std::move(what);
    return false;
  }

  static constexpr int kDeepest = 64;
  const std::string& field_;
  std::vector<std::string> names_;
  std::string text_, fault_;
  std::size_t fault_at_ = 0;
  int depth_ = 0;
  bool wanted_ = false, found_ = false, invalid_ = false;
};

// What many programs write though JSON does not have it, replaced by as many characters: NaN, Infinity and -Infinity by
// 0, the escape of half a surrogate pair by another escape.
struct Repaired {
  std::string line;
  bool numbers = false, halves = false;
};

// The code unit of an escape \\uXXXX at the beginning of the text; -1: it is none.
int code_unit(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return -1;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, value, 16);
  return error == std::errc() && end == text.data() + 6 ? value : -1;
}

Repaired repaired(std::string_view line, std::string_view escape) {
  Repaired result{std::string(line)};
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '+';
  };
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') {
      in_string = !in_string;
    } else if (in_string && line[i] == '\\') {
      const int unit = code_unit(line.substr(i)), next = code_unit(line.substr(std::min(line.size(), i + 6)));
      const bool high = unit >= 0xD800 && unit < 0xDC00, low = unit >= 0xDC00 && unit < 0xE000;
      const bool pair = high && next >= 0xDC00 && next < 0xE000;
      if ((high || low) && !pair) {
        result.line.replace(i, 6, escape);
        result.halves = true;
      }
      i += pair ? 11 : high || low ? 5 : 1;
    } else if (!in_string && (i == 0 || !is_word(line[i - 1]))) {
      for (const std::string_view name : {"NaN", "Infinity", "-Infinity"}) {
        const std::size_t end = i + name.size();
        if (!line.substr(i).starts_with(name) || (end < line.size() && is_word(line[end]))) continue;
        result.line.replace(i, name.size(), name.size(), ' ');
        result.line[i] = '0';
        result.numbers = true;
        i = end - 1;
        break;
      }
    }
  }
  return result;
}

// The text of a line, or what is wrong with it and where.
struct LineText {
  std::string text, fault;
  std::size_t fault_at = 0;
};

LineText result_of(FieldReader& reader, const std::string& field) {
  if (!reader.fault().empty()) return {"", reader.fault(), reader.fault_at()};
  if (!reader.found()) return {"", "expected the field '" + field + "' on each line; found " + reader.fields()};
  return {std::move(reader.text()), ""};
}

LineText parsed(std::string_view line, const std::string& field, bool* invalid = nullptr) {
  FieldReader reader(field);
  Json::sax_parse(line.begin(), line.end(), &reader);
  if (invalid) *invalid = reader.invalid();
  return result_of(reader, field);
}

// Numbers and strings that only other fields have do no harm.
LineText text_of(std::string_view line, const std::string& field) {
  bool invalid = false;
  LineText strict = parsed(line, field, &invalid);
  if (!invalid) return strict;
  const Repaired one = repaired(line, "\\ufffd");
  if (!one.numbers && !one.halves) return strict;
  LineText lenient = parsed(one.line, field);
  if (!one.halves || !lenient.fault.empty()) return lenient;
  if (parsed(repaired(line, "\\ufffc").line, field).text == lenient.text) return lenient;
  return {"", "the field '" + field + "' has half of a surrogate pair, which is no character"};
}

}  // namespace

void each_json_line(std::string_view lines, const std::string& field, const std::function<void(std::string_view)>& take,
                    const std::function<void(std::size_t at, const std::string& fault)>& refuse) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      const LineText found = text_of(line, field);
      if (found.fault.empty())
        take(found.text);
      else
        refuse(at + found.fault_at, found.fault);
    }
    at = end + 1;
  }
}

}  // namespace qkv
