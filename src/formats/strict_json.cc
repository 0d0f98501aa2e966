// SPDX-License-Identifier: Apache-2.0
#include "formats/strict_json.h"

#include <algorithm>
#include <set>

#include "formats/in_quotes.h"
#include "os/mapped_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using nlohmann::json;

constexpr std::size_t kDeepest = 32;

// Builds a JSON value from parser events.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const std::string& path) : path_(path) {}

  json take() { return std::move(root_); }

  bool null() override { return add(json()); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (open_.back()->contains(name)) throw FileError(path_, in_quotes(name) + " occurs twice");
    key_ = name;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    throw FileError(path_, static_cast<std::int64_t>(position) - 1, "the file is not valid JSON");
  }

 private:
  json& place(json value) {
    if (open_.empty()) return root_ = std::move(value);
    if (open_.back()->is_array()) return open_.back()->emplace_back(std::move(value));
    return (*open_.back())[key_] = std::move(value);
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (open_.size() == kDeepest)
      throw FileError(path_, "is nested deeper than " + std::to_string(kDeepest) + " objects and lists");
    open_.push_back(&place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& path_;
  json root_;
  // The open containers, outermost first. Pointers stay valid: a container grows only while no nested container is
  // open.
  std::vector<json*> open_;
  std::string key_;
};

}  // namespace

nlohmann::json parse_json(const std::string& path, std::string_view text) {
  // The JSON library treats NUL as the end of input.
  if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos)
    throw FileError(path, static_cast<std::int64_t>(nul), "the file contains a NUL byte and is not JSON");
  Builder builder(path);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

nlohmann::json load_json(const std::string& path, std::size_t largest) {
  const MappedFile file(path);
  if (file.size() > largest)
    throw FileError(path, "has " + std::to_string(file.size()) + " bytes; expected at most " + std::to_string(largest));
  return parse_json(path, {reinterpret_cast<const char*>(file.data()), file.size()});
}

void JsonPlace::fail(const std::string& reason) const { throw FileError(path_, where_ + ": " + reason); }

void JsonPlace::expected(const char* what) const {
  std::string shown = value_.is_object() ? "an object" : value_.is_array() ? "a list" : value_.dump();
  if (shown.size() > 40) shown = shown.substr(0, 40) + "...";
  fail(std::string("expected ") + what + "; found " + shown);
}

const std::string& JsonPlace::string() const {
  if (!value_.is_string()) expected("a string");
  return value_.get_ref<const std::string&>();
}

bool JsonPlace::boolean() const {
  if (!value_.is_boolean()) expected("true or false");
  return value_.get<bool>();
}

std::int64_t JsonPlace::integer(std::int64_t lowest, std::int64_t highest) const {
  const bool fits = value_.is_number_unsigned() ? value_.get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX)
                                                : value_.is_number_integer();
  if (!fits || value_.get<std::int64_t>() < lowest || value_.get<std::int64_t>() > highest)
    expected(("a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest)).c_str());
  return value_.get<std::int64_t>();
}

double JsonPlace::number() const {
  if (!value_.is_number()) expected("a number");
  return value_.get<double>();
}

const nlohmann::json& JsonPlace::object() const {
  if (!value_.is_object()) expected("an object");
  return value_;
}

std::vector<JsonPlace> JsonPlace::list() const {
  if (!value_.is_array()) expected("a list");
  std::vector<JsonPlace> items;
  for (std::size_t i = 0; i < value_.size(); ++i)
    items.emplace_back(path_, value_[i], where_ + "[" + std::to_string(i) + "]");
  return items;
}

JsonPlace JsonPlace::at(const std::string& key) const {
  const auto found = object().find(key);
  if (found == value_.end()) fail("has no " + in_quotes(key));
  return {path_, *found, in_quotes(key)};
}

bool JsonPlace::has(const std::string& key) const {
  const auto found = object().find(key);
  return found != value_.end() && !found->is_null();
}

bool JsonPlace::boolean_or(const std::string& key, bool otherwise) const {
  return has(key) ? at(key).boolean() : otherwise;
}

std::int64_t JsonPlace::integer_or(const std::string& key, std::int64_t otherwise, std::int64_t lowest,
                                   std::int64_t highest) const {
  return has(key) ? at(key).integer(lowest, highest) : otherwise;
}

double JsonPlace::number_or(const std::string& key, double otherwise) const {
  return has(key) ? at(key).number() : otherwise;
}

std::string JsonPlace::string_or(const std::string& key, const std::string& otherwise) const {
  return has(key) ? at(key).string() : otherwise;
}

void JsonPlace::only(std::initializer_list<std::string_view> keys) const {
  for (const auto& [key, ignored] : object().items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) fail("has the unknown key " + in_quotes(key));
}

}  // namespace qkv
