// SPDX-License-Identifier: Apache-2.0
#include "jinja/value.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <stdexcept>

namespace qkv::jinja {

const Sequence* Value::list() const {
  const auto* p = get<std::shared_ptr<const Sequence>>();
  return p ? p->get() : nullptr;
}
const Mapping* Value::dict() const {
  const auto* p = get<std::shared_ptr<const Mapping>>();
  return p ? p->get() : nullptr;
}
Namespace* Value::space() const {
  const auto* p = get<std::shared_ptr<Namespace>>();
  return p ? p->get() : nullptr;
}
Callable* Value::callable() const {
  const auto* p = get<std::shared_ptr<Callable>>();
  return p ? p->get() : nullptr;
}
std::optional<std::int64_t> Value::integer() const {
  if (const auto* b = get<bool>()) return *b;
  if (const auto* i = get<std::int64_t>()) return *i;
  return std::nullopt;
}
std::optional<double> Value::number() const {
  if (const auto* d = get<double>()) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

int depth_of(const Value& value) noexcept {
  if (const Sequence* s = value.list()) return s->depth;
  if (const Mapping* m = value.dict()) return m->depth;
  return 0;
}

const Value* Mapping::find(const Value& key) const {
  for (const auto& [name, value] : items)
    if (equal(name, key)) return &value;
  return nullptr;
}
const Value* Mapping::find(std::string_view key) const {
  for (const auto& [name, value] : items)
    if (name.string() && name.string()->bytes == key) return &value;
  return nullptr;
}
Value* Namespace::find(std::string_view name) {
  for (auto& [known, value] : items)
    if (known == name) return &value;
  return nullptr;
}

namespace {

int checked(int depth) {
  if (depth > kDeepestValue)
    throw std::invalid_argument(fmt::format("expected values nested at most {} deep; found more", kDeepestValue));
  return depth;
}

MarkedText quoted(const MarkedText& text) {
  const bool has_single = text.bytes.find('\'') != std::string::npos,
             has_double = text.bytes.find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  MarkedText result(std::string(1, quote));
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\')
      result.add(std::string{'\\', c}, text.mark_at(i));
    else if (c == '\n')
      result.add("\\n", text.mark_at(i));
    else if (c == '\r')
      result.add("\\r", text.mark_at(i));
    else if (c == '\t')
      result.add("\\t", text.mark_at(i));
    else if (byte < 32 || byte == 127)
      result.add(fmt::format("\\x{:02x}", byte), text.mark_at(i));
    else
      result.add(std::string(1, c), text.mark_at(i));
  }
  result.add(std::string(1, quote));
  return result;
}

}  // namespace

Value make_list(std::vector<Value> items, bool tuple) {
  Sequence sequence{std::move(items), tuple, 1};
  for (const Value& item : sequence.items) sequence.depth = std::max(sequence.depth, 1 + depth_of(item));
  checked(sequence.depth);
  return Value(std::make_shared<const Sequence>(std::move(sequence)));
}

Value make_dict(std::vector<std::pair<Value, Value>> items) {
  Mapping mapping;
  for (auto& [key, value] : items) {
    if (key.list() || key.dict())
      throw std::invalid_argument("expected a key that is a string or a number; found " + std::string(type_name(key)));
    mapping.depth = std::max(mapping.depth, 1 + depth_of(value));
    if (const Value* known = mapping.find(key))
      *const_cast<Value*>(known) = std::move(value);
    else
      mapping.items.emplace_back(std::move(key), std::move(value));
  }
  checked(mapping.depth);
  return Value(std::make_shared<const Mapping>(std::move(mapping)));
}

std::string_view type_name(const Value& value) {
  constexpr std::string_view kNames[] = {"undefined", "none",   "a boolean", "an integer",  "a number",
                                         "a string",  "a list", "a mapping", "a namespace", "a function"};
  return kNames[value.is.index()];
}

bool truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (const auto number = value.number()) return *number != 0;
  if (const MarkedText* text = value.string()) return !text->bytes.empty();
  if (const Sequence* list = value.list()) return !list->items.empty();
  if (const Mapping* dict = value.dict()) return !dict->items.empty();
  return true;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::scientific).ptr;
  const std::string text(digits, end);
  const std::size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed_end = std::to_chars(digits, digits + sizeof digits, value, std::chars_format::fixed).ptr;
  std::string fixed(digits, fixed_end);
  if (fixed.find('.') == std::string::npos) fixed += ".0";
  return fixed;
}

MarkedText str(const Value& value) {
  if (value.is_undefined()) return {};
  if (const MarkedText* text = value.string()) return *text;
  return repr(value);
}

MarkedText repr(const Value& value, int depth) {
  checked(depth);
  if (value.is_undefined()) return MarkedText("Undefined");
  if (value.is_none()) return MarkedText("None");
  if (const auto* b = value.get<bool>()) return MarkedText(*b ? "True" : "False");
  if (const auto* i = value.get<std::int64_t>()) return MarkedText(std::to_string(*i));
  if (const auto* d = value.get<double>()) return MarkedText(number_text(*d));
  if (const MarkedText* text = value.string()) return quoted(*text);
  MarkedText result;
  if (const Sequence* list = value.list()) {
    result.add(list->tuple ? "(" : "[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) result.add(", ");
      result.add(repr(list->items[i], depth + 1));
    }
    result.add(list->tuple ? (list->items.size() == 1 ? ",)" : ")") : "]");
  } else if (const Mapping* dict = value.dict()) {
    result.add("{");
    for (std::size_t i = 0; i < dict->items.size(); ++i) {
      if (i > 0) result.add(", ");
      result.add(repr(dict->items[i].first, depth + 1));
      result.add(": ");
      result.add(repr(dict->items[i].second, depth + 1));
    }
    result.add("}");
  } else {
    throw std::invalid_argument("expected a value that can be printed; found " + std::string(type_name(value)));
  }
  return result;
}

}  // namespace qkv::jinja
