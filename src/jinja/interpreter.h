// SPDX-License-Identifier: Apache-2.0
// One rendering of a template.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "jinja/node.h"
#include "jinja/template.h"

namespace qkv::jinja {

// Names in force, the innermost first.
struct Scope {
  std::shared_ptr<Scope> outer;
  std::vector<std::pair<std::string, Value>> names;
  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  Interpreter(const std::tm& now, const Limits& limits) : now_(now), limits_(limits) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  MarkedText run(const Node& root, const std::vector<std::pair<std::string, Value>>& variables);

  void spend(std::size_t steps = 1);  // throws std::invalid_argument past the limits
  void spend_bytes(std::size_t bytes);
  const std::tm& now() const { return now_; }
  Value made(MarkedText text);  // a string
  Value made(std::vector<Value> items, bool tuple = false);
  Value keep(std::shared_ptr<Namespace> space);  // emptied at the end, so that circles end
  // The items of what a loop goes through. Throws for what is not iterable.
  std::vector<Value> items_of(const Value& value);
  Value attribute(const Value& of, std::string_view name);  // of.name
  Value item(const Value& of, const Value& key);            // of[key]
  Value filter(std::string_view name, const Value& value, Arguments& arguments);
  bool test(std::string_view name, const Value& value, Arguments& arguments);
  Value call(const Value& function, Arguments& arguments);
  Value binary(std::string_view op, const Value& a, const Value& b);

 private:
  enum class Leave { nothing, loop, round };
  class Deeper;
  void at(const Node& node) { line_ = node.line, column_ = node.column; }
  Value evaluate(const Node& node, const ScopePtr& scope);
  Value unary(const Node& node, const ScopePtr& scope);
  Value slice(const Node& node, const ScopePtr& scope);
  bool comparison(const Node& node, const ScopePtr& scope);
  Arguments arguments(const Node& node, std::size_t from, const ScopePtr& scope);
  Leave execute(const Node& node, const ScopePtr& scope, MarkedText& out);
  Leave for_loop(const Node& node, const ScopePtr& scope, MarkedText& out);
  void assign(const Node& node, Value value, const ScopePtr& scope);
  void unpack(const Node& node, const Value& value, Scope& scope);
  Value macro(const Node& node, const ScopePtr& scope);
  Value call_macro(const Node& node, const ScopePtr& scope, Arguments& arguments);
  MarkedText text_of(const Node& body, const ScopePtr& scope);
  void add(MarkedText& out, const Value& value);

  std::tm now_;
  Limits limits_;
  std::int64_t steps_ = 0, bytes_ = 0;
  int depth_ = 0, line_ = 1, column_ = 1;
  std::vector<std::shared_ptr<Namespace>> spaces_;
  std::vector<ScopePtr> scopes_;  // that macros see
};

// Globals: range, namespace, dict, raise_exception, strftime_now, joiner, cycler; nullptr for another name.
const Value* global(std::string_view name);
// A method of a string, list or mapping; undefined if there is none of this name.
Value method(const Value& of, std::string_view name);
std::string to_json(const Value& value);
MarkedText json_text(Interpreter& in, const Value& value, Arguments& arguments);
MarkedText formatted(const MarkedText& pattern, const Value& values);  // "%s" % values
std::string date_text(std::string_view format, const std::tm& time);
Value reversed(Interpreter& in, const Value& value);
Value sliced(Interpreter& in, const Value& of, const Value& begin, const Value& end, const Value& step);

// An argument by place or by name; nullptr if it is not given. Throws for more than were given names.
const Value* argument(const Arguments& arguments, std::size_t place, std::string_view name);
void check_count(const Arguments& arguments, std::size_t most);
std::int64_t integer_of(const Value& value);
const MarkedText& string_of(const Value& value);

}  // namespace qkv::jinja
