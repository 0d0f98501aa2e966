// SPDX-License-Identifier: Apache-2.0
#include "train/json_lines.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "qkv/error.h"

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
  bool wanted_ = false, found_ = false;
};

}  // namespace

void each_json_line(std::string_view lines, const std::string& field, const LinesPlace& place,
                    const std::function<void(std::string_view)>& take) {
  for (std::size_t at = 0; at < lines.size();) {
    const std::size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    if (line.find_first_not_of(" \t\r") != std::string_view::npos) {
      FieldReader reader(field);
      Json::sax_parse(line.begin(), line.end(), &reader);
      const auto where = [&](std::size_t in_line) { return place.at + static_cast<std::int64_t>(at + in_line); };
      if (!reader.fault().empty()) throw FileError(place.path, where(reader.fault_at()), reader.fault());
      if (!reader.found())
        throw FileError(place.path, where(0),
                        "expected the field '" + field + "' on each line; found " + reader.fields());
      take(reader.text());
    }
    at = end + 1;
  }
}

}  // namespace qkv
