// SPDX-License-Identifier: Apache-2.0
// JSON from untrusted files: no duplicate names, bounded depth, checked access.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// Reads a whole file of at most `largest` bytes. Throws qkv::FileError.
nlohmann::json load_json(const std::string& path, std::size_t largest);
nlohmann::json parse_json(const std::string& path, std::string_view text);

// A value of a file with its position, so that every error can name both. The JSON must outlive it.
class JsonPlace {
 public:
  JsonPlace(const std::string& path, const nlohmann::json& value, std::string where = "the file")
      : path_(path), value_(value), where_(std::move(where)) {}

  const std::string& where() const noexcept { return where_; }
  const nlohmann::json& value() const noexcept { return value_; }
  bool is_null() const noexcept { return value_.is_null(); }
  bool is_string() const noexcept { return value_.is_string(); }

  // Each throws qkv::FileError if the value has another type.
  const std::string& string() const;
  bool boolean() const;
  std::int64_t integer(std::int64_t lowest, std::int64_t highest) const;
  double number() const;
  const nlohmann::json& object() const;
  std::vector<JsonPlace> list() const;

  JsonPlace at(const std::string& key) const;  // a required key
  bool has(const std::string& key) const;      // of an object: the key exists and is not null
  bool boolean_or(const std::string& key, bool otherwise) const;
  std::int64_t integer_or(const std::string& key, std::int64_t otherwise, std::int64_t lowest,
                          std::int64_t highest) const;
  double number_or(const std::string& key, double otherwise) const;
  std::string string_or(const std::string& key, const std::string& otherwise) const;
  // The same position with another value, which must outlive it.
  JsonPlace with(const nlohmann::json& value) const { return {path_, value, where_}; }
  // Throws if the object has any other keys.
  void only(std::initializer_list<std::string_view> keys) const;

  [[noreturn]] void fail(const std::string& reason) const;

 private:
  [[noreturn]] void expected(const char* what) const;

  const std::string& path_;
  const nlohmann::json& value_;
  std::string where_;
};

}  // namespace qkv
