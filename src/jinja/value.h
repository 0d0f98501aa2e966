// SPDX-License-Identifier: Apache-2.0
// What a template computes with: Python's values as far as templates use them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "jinja/marked_text.h"

namespace qkv::jinja {

struct Value;
struct Sequence;
struct Mapping;
struct Namespace;
struct Callable;

struct Undefined {
  std::string name;  // for errors
};
struct None {};
using Text = std::shared_ptr<const MarkedText>;

struct Value {
  std::variant<Undefined, None, bool, std::int64_t, double, Text, std::shared_ptr<const Sequence>,
               std::shared_ptr<const Mapping>, std::shared_ptr<Namespace>, std::shared_ptr<Callable>>
      is = Undefined{};

  Value() = default;
  template <class T>
  explicit Value(T value) : is(std::move(value)) {}
  static Value text(MarkedText text) { return Value(std::make_shared<const MarkedText>(std::move(text))); }
  static Value text(std::string_view text, Mark mark = Mark::written) { return Value::text(MarkedText(text, mark)); }
  static Value none() { return Value(None{}); }
  static Value undefined(std::string_view name) { return Value(Undefined{std::string(name)}); }

  template <class T>
  const T* get() const {
    return std::get_if<T>(&is);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  const MarkedText* string() const { return get<Text>() ? get<Text>()->get() : nullptr; }
  const Sequence* list() const;
  const Mapping* dict() const;
  Namespace* space() const;
  Callable* callable() const;
  std::optional<std::int64_t> integer() const;  // a boolean is one, too
  std::optional<double> number() const;
};

// How deep lists and mappings may be nested, so that none is too deep to be visited.
inline constexpr int kDeepestValue = 64;
int depth_of(const Value& value) noexcept;

struct Sequence {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;
};
struct Mapping {
  std::vector<std::pair<Value, Value>> items;  // in the order they were put there
  int depth = 1;
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
};
struct Namespace {  // also what cycler, joiner and loop keep
  std::vector<std::pair<std::string, Value>> items;
  Value* find(std::string_view name);
};

struct Arguments {
  std::vector<Value> given;
  std::vector<std::pair<std::string, Value>> named;
};
class Interpreter;
struct Callable {
  std::string name;
  std::function<Value(Interpreter&, Arguments&)> call;
  std::vector<std::pair<std::string, Value>> members;  // loop.index, macro.name, ...
};

// Throw std::invalid_argument for one that is nested too deep.
Value make_list(std::vector<Value> items, bool tuple = false);
Value make_dict(std::vector<std::pair<Value, Value>> items);  // of equal keys the last value stays

bool truth(const Value& value);
bool equal(const Value& a, const Value& b, int depth = 0);
std::string_view type_name(const Value& value);      // as Python says it
MarkedText str(const Value& value);                  // Python's str(); undefined is ""
MarkedText repr(const Value& value, int depth = 0);  // Python's repr()
std::string number_text(double value);               // Python's repr of a float

}  // namespace qkv::jinja
