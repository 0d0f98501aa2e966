// SPDX-License-Identifier: Apache-2.0
// Operators, attributes, calls and the global functions.
#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>

#include "jinja/compare.h"
#include "jinja/interpreter.h"

namespace qkv::jinja {
namespace {

[[noreturn]] void fail(const std::string& expected, const Value& found) {
  const Undefined* undefined = found.get<Undefined>();
  throw std::invalid_argument(
      "expected " + expected + "; found " +
      (undefined ? "'" + undefined->name.substr(0, 60) + "', which is undefined" : std::string(type_name(found))));
}

Value int_checked(bool overflow, const std::int64_t& value) {
  if (overflow) throw std::invalid_argument("expected integers of at most 63 bits; found a larger one");
  return Value(value);
}
std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == -1) return int_checked(a == INT64_MIN, a == INT64_MIN ? 0 : -a).integer().value();
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

Value power(const Value& a, const Value& b) {
  if (!a.integer() || !b.integer() || *b.integer() < 0) return Value(std::pow(*a.number(), *b.number()));
  std::int64_t result = 1;
  const std::int64_t base = *a.integer(), times = *b.integer();
  if (base == 0 || base == 1) return Value(times == 0 ? std::int64_t{1} : base);
  if (base == -1) return Value(times % 2 == 0 ? std::int64_t{1} : std::int64_t{-1});
  for (std::int64_t i = 0; i < times; ++i) int_checked(__builtin_mul_overflow(result, base, &result), 0);
  return Value(result);
}

Value function(std::string name, std::function<Value(Interpreter&, Arguments&)> call) {
  auto made = std::make_shared<Callable>();
  made->name = std::move(name);
  made->call = std::move(call);
  return Value(std::move(made));
}

Value range(Interpreter& in, Arguments& arguments) {
  check_count(arguments, 3);
  if (arguments.given.empty()) throw std::invalid_argument("range expected one to three integers; found none");
  std::int64_t begin = 0, end = integer_of(arguments.given[0]), step = 1;
  if (arguments.given.size() > 1) begin = end, end = integer_of(arguments.given[1]);
  if (arguments.given.size() > 2) step = integer_of(arguments.given[2]);
  if (step == 0) throw std::invalid_argument("range expected a step that is not 0; found 0");
  constexpr std::int64_t kMost = 100000;  // as the sandbox of Jinja
  std::vector<Value> items;
  for (__int128 i = begin; step > 0 ? i < end : i > end; i += step) {
    if (static_cast<std::int64_t>(items.size()) == kMost)
      throw std::invalid_argument("range expected at most 100000 items; found more");
    items.emplace_back(static_cast<std::int64_t>(i));
  }
  in.spend(items.size());
  return in.made(std::move(items));
}

std::vector<std::pair<Value, Value>> pairs(Interpreter& in, Arguments& arguments) {
  check_count(arguments, 1);
  std::vector<std::pair<Value, Value>> items;
  if (!arguments.given.empty()) {
    if (const Mapping* dict = arguments.given[0].dict()) {
      items = dict->items;
    } else {
      for (const Value& pair : in.items_of(arguments.given[0])) {
        std::vector<Value> two = in.items_of(pair);
        if (two.size() != 2)
          throw std::invalid_argument("dict expected pairs; found " + std::to_string(two.size()) + " values");
        items.emplace_back(two[0], two[1]);
      }
    }
  }
  for (auto& [name, value] : arguments.named) items.emplace_back(Value::text(name), value);
  in.spend(items.size() * items.size());
  in.spend_bytes(items.size() * 2 * sizeof(Value));
  return items;
}

Value make_namespace(Interpreter& in, Arguments& arguments) {
  auto space = std::make_shared<Namespace>();
  for (auto& [key, value] : pairs(in, arguments)) {
    const std::string& name = string_of(key).bytes;
    if (name.starts_with('_'))
      throw std::invalid_argument("expected a name without '_' at its beginning; found '" + name + "'");
    if (Value* old = space->find(name))
      *old = value;
    else
      space->items.emplace_back(name, value);
  }
  return in.keep(std::move(space));
}

Value cycler(Interpreter& in, Arguments& arguments) {
  if (arguments.given.empty()) throw std::invalid_argument("cycler expected values; found none");
  const auto values = std::make_shared<Namespace>();
  for (const Value& value : arguments.given) values->items.emplace_back("", value);
  in.keep(values);
  const auto place = std::make_shared<std::size_t>(0);
  auto made = std::make_shared<Callable>();
  made->name = "cycler";
  made->members.emplace_back("next", function("next", [place, values](Interpreter&, Arguments&) {
                               return values->items[(*place)++ % values->items.size()].second;
                             }));
  made->members.emplace_back("reset", function("reset", [place](Interpreter&, Arguments&) {
                               *place = 0;
                               return Value::none();
                             }));
  return Value(std::move(made));
}

Value joiner(Interpreter&, Arguments& arguments) {
  check_count(arguments, 1);
  const Value* given = argument(arguments, 0, "sep");
  const Value separator = given ? *given : Value::text(", ");
  const auto used = std::make_shared<bool>(false);
  return function("joiner", [used, separator](Interpreter&, Arguments&) {
    return std::exchange(*used, true) ? separator : Value::text("");
  });
}

}  // namespace

const Value* global(std::string_view name) {
  static const std::map<std::string, Value, std::less<>> all = {
      {"range", function("range", range)},
      {"dict", function("dict", [](Interpreter& in, Arguments& arguments) { return make_dict(pairs(in, arguments)); })},
      {"namespace", function("namespace", make_namespace)},
      {"cycler", function("cycler", cycler)},
      {"joiner", function("joiner", joiner)},
      {"raise_exception", function("raise_exception",
                                   [](Interpreter&, Arguments& arguments) -> Value {
                                     const Value* message = argument(arguments, 0, "message");
                                     throw std::invalid_argument("the template says: " +
                                                                 (message ? str(*message).bytes : ""));
                                   })},
      {"strftime_now", function("strftime_now", [](Interpreter& in, Arguments& arguments) {
         const Value* format = argument(arguments, 0, "format");
         if (!format) throw std::invalid_argument("strftime_now expected a format; found none");
         return in.made(MarkedText(date_text(string_of(*format).bytes, in.now())));
       })}};
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

const Value* argument(const Arguments& arguments, std::size_t place, std::string_view name) {
  if (place < arguments.given.size()) return &arguments.given[place];
  for (const auto& [key, value] : arguments.named)
    if (key == name) return &value;
  return nullptr;
}
void check_count(const Arguments& arguments, std::size_t most) {
  if (arguments.given.size() > most)
    throw std::invalid_argument("expected at most " + std::to_string(most) + " arguments; found " +
                                std::to_string(arguments.given.size()));
}
std::int64_t integer_of(const Value& value) {
  if (const auto integer = value.integer()) return *integer;
  fail("an integer", value);
}
const MarkedText& string_of(const Value& value) {
  if (const MarkedText* text = value.string()) return *text;
  fail("a string", value);
}

std::vector<Value> Interpreter::items_of(const Value& value) {
  std::vector<Value> items;
  if (const Sequence* list = value.list()) {
    items = list->items;
  } else if (const Mapping* dict = value.dict()) {
    for (const auto& [key, ignored] : dict->items) items.push_back(key);
  } else if (const MarkedText* text = value.string()) {
    spend_bytes(text->bytes.size() * 32);
    const std::vector<std::size_t> at = boundaries(text->bytes);
    for (std::size_t i = 0; i + 1 < at.size(); ++i) items.push_back(Value::text(text->part(at[i], at[i + 1])));
  } else if (!value.is_undefined()) {
    fail("a list, mapping or string to go through", value);
  }
  spend(items.size());
  return items;
}

Value Interpreter::attribute(const Value& of, std::string_view name) {
  if (of.is_undefined()) fail("a value with '" + std::string(name) + "'", of);
  if (Value found = method(of, name); !found.is_undefined()) return found;
  if (Namespace* space = of.space()) {
    const Value* value = space->find(name);
    return value ? *value : Value::undefined(name);
  }
  if (const Callable* callable = of.callable()) {
    for (const auto& [known, value] : callable->members)
      if (known == name) return value;
    return Value::undefined(name);
  }
  if (const Mapping* dict = of.dict()) {
    spend(dict->items.size() / 8);
    if (const Value* value = dict->find(name)) return *value;
  }
  return Value::undefined(name);
}

Value Interpreter::item(const Value& of, const Value& key) {
  if (of.is_undefined()) fail("a value with an item", of);
  if (const Mapping* dict = of.dict()) {
    spend(dict->items.size() / 8);
    if (const Value* value = dict->find(key)) return *value;
  } else if (key.integer() && (of.list() || of.string())) {
    const std::vector<std::size_t> at = of.string() ? boundaries(of.string()->bytes) : std::vector<std::size_t>();
    const auto size = static_cast<std::int64_t>(of.list() ? of.list()->items.size() : at.size() - 1);
    if (of.string()) spend(at.size() / 8);
    std::int64_t place = *key.integer();
    if (place < 0) place += size;
    if (place < 0 || place >= size) return Value::undefined("item " + std::to_string(*key.integer()));
    const auto index = static_cast<std::size_t>(place);
    return of.list() ? of.list()->items[index] : made(of.string()->part(at[index], at[index + 1]));
  }
  if (const MarkedText* name = key.string()) {
    if (of.dict()) {
      Value found = method(of, name->bytes);
      return found.is_undefined() ? Value::undefined(name->bytes) : found;
    }
    return attribute(of, name->bytes);
  }
  return Value::undefined("item");
}

Value sliced(Interpreter& in, const Value& of, const Value& begin, const Value& end, const Value& step) {
  if (!of.list() && !of.string()) fail("a list or a string to slice", of);
  const std::vector<std::size_t> at = of.string() ? boundaries(of.string()->bytes) : std::vector<std::size_t>();
  const auto size = static_cast<std::int64_t>(of.list() ? of.list()->items.size() : at.size() - 1);
  const auto given = [&](const Value& value) { return !value.is_none(); };
  const std::int64_t by = given(step) ? integer_of(step) : 1;
  if (by == 0) throw std::invalid_argument("expected a step that is not 0; found 0");
  const auto bounded = [&](const Value& value, std::int64_t standard) {
    if (!given(value)) return standard;
    std::int64_t place = integer_of(value);
    if (place < 0) place = place < -size ? -1 : place + size;
    return by > 0 ? std::clamp<std::int64_t>(place, 0, size) : std::clamp<std::int64_t>(place, -1, size - 1);
  };
  const std::int64_t first = bounded(begin, by > 0 ? 0 : size - 1), last = bounded(end, by > 0 ? size : -1);
  in.spend(static_cast<std::size_t>(size) / 8);
  if (of.string() && by == 1) {
    return in.made(first < last
                       ? of.string()->part(at[static_cast<std::size_t>(first)], at[static_cast<std::size_t>(last)])
                       : MarkedText());
  }
  std::vector<Value> items;
  MarkedText text;
  for (__int128 i = first; by > 0 ? i < last : i > last; i += by) {
    const auto index = static_cast<std::size_t>(i);
    if (of.list())
      items.push_back(of.list()->items[index]);
    else
      text.add(of.string()->part(at[index], at[index + 1]));
  }
  return of.list() ? in.made(std::move(items), of.list()->tuple) : in.made(std::move(text));
}

Value Interpreter::slice(const Node& node, const ScopePtr& scope) {
  Value parts[4];
  for (std::size_t i = 0; i < 4; ++i) parts[i] = node.children[i] ? evaluate(*node.children[i], scope) : Value::none();
  at(node);
  if (parts[0].is_undefined() || parts[0].dict() || parts[0].is_none()) {
    if (parts[0].is_undefined()) fail("a list or a string to slice", parts[0]);
    return Value::undefined("a slice");
  }
  return sliced(*this, parts[0], parts[1], parts[2], parts[3]);
}

Arguments Interpreter::arguments(const Node& node, std::size_t from, const ScopePtr& scope) {
  Arguments result;
  for (std::size_t i = from; i < node.children.size(); ++i) result.given.push_back(evaluate(*node.children[i], scope));
  for (const auto& [name, value] : node.named) result.named.emplace_back(name, evaluate(*value, scope));
  return result;
}

Value Interpreter::call(const Value& function, Arguments& given) {
  spend();
  Callable* callable = function.callable();
  if (!callable || !callable->call) fail("a function to call", function);
  return callable->call(*this, given);
}

Value Interpreter::unary(const Node& node, const ScopePtr& scope) {
  const Value value = evaluate(*node.children[0], scope);
  at(node);
  if (node.text == "not") return Value(!truth(value));
  if (!value.number()) fail("a number", value);
  if (node.text == "+") return value.integer() ? Value(*value.integer()) : value;
  if (const auto integer = value.integer())
    return int_checked(*integer == INT64_MIN, *integer == INT64_MIN ? 0 : -*integer);
  return Value(-*value.number());
}

bool Interpreter::comparison(const Node& node, const ScopePtr& scope) {
  Value left = evaluate(*node.children[0], scope);
  for (std::size_t i = 0; i < node.names.size(); ++i) {
    Value right = evaluate(*node.children[i + 1], scope);
    at(node);
    const std::string& op = node.names[i];
    for (const Value* one : {&left, &right}) {
      if (one->string()) spend(one->string()->bytes.size() / 256);
      if (one->list()) spend(one->list()->items.size());
      if (one->dict()) spend(one->dict()->items.size() * one->dict()->items.size());
    }
    bool good;
    if (op == "==" || op == "!=")
      good = equal(left, right) == (op == "==");
    else if (op == "in" || op == "not in")
      good = contains(right, left) == (op == "in");
    else if (const int order = compare(left, right); op.size() == 2)
      good = op == "<=" ? order <= 0 : order >= 0;
    else
      good = op == "<" ? order < 0 : order > 0;
    if (!good) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::binary(std::string_view op, const Value& a, const Value& b) {
  if (op == "+" && a.string() && b.string()) {
    MarkedText text = *a.string();
    text.add(*b.string());
    return made(std::move(text));
  }
  if (op == "+" && a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    std::vector<Value> items = a.list()->items;
    items.insert(items.end(), b.list()->items.begin(), b.list()->items.end());
    return made(std::move(items), a.list()->tuple);
  }
  if (op == "%" && a.string()) return made(formatted(*a.string(), b));
  if (op == "*" && ((a.string() || a.list()) != (b.string() || b.list())) && (a.integer() || b.integer())) {
    const Value& many = a.integer() ? b : a;
    const std::int64_t times = std::max<std::int64_t>(a.integer() ? *a.integer() : *b.integer(), 0);
    const std::size_t size = many.string() ? many.string()->bytes.size() : many.list()->items.size();
    if (times > 1 << 28) spend_bytes(std::size_t{1} << 40);
    spend_bytes(size * static_cast<std::size_t>(times) * (many.list() ? sizeof(Value) : 1));
    MarkedText text;
    std::vector<Value> items;
    for (std::int64_t i = 0; i < times && size > 0; ++i) {
      if (many.string())
        text.add(*many.string());
      else
        items.insert(items.end(), many.list()->items.begin(), many.list()->items.end());
    }
    return many.string() ? made(std::move(text)) : made(std::move(items), many.list()->tuple);
  }
  for (const Value* one : {&a, &b})
    if (!one->number()) fail("two numbers, or two strings or lists to add, around '" + std::string(op) + "'", *one);
  const double x = *a.number(), y = *b.number();
  if ((op == "/" || op == "//" || op == "%") && y == 0)
    throw std::invalid_argument("expected a divisor that is not 0; found 0");
  if (op == "**") return power(a, b);
  if (op == "/") return Value(x / y);
  if (a.integer() && b.integer()) {
    const std::int64_t i = *a.integer(), j = *b.integer();
    std::int64_t result = 0;
    if (op == "+") return int_checked(__builtin_add_overflow(i, j, &result), result);
    if (op == "-") return int_checked(__builtin_sub_overflow(i, j, &result), result);
    if (op == "*") return int_checked(__builtin_mul_overflow(i, j, &result), result);
    if (op == "//") return Value(floor_divided(i, j));
    return Value(j == -1 ? std::int64_t{0} : i - floor_divided(i, j) * j);
  }
  if (op == "+") return Value(x + y);
  if (op == "-") return Value(x - y);
  if (op == "*") return Value(x * y);
  if (op == "//") return Value(std::floor(x / y));
  const double rest = std::fmod(x, y);
  return Value(rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest);
}

}  // namespace qkv::jinja
