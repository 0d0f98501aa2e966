// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <stdexcept>

#include "jinja/compare.h"
#include "jinja/interpreter.h"

namespace qkv::jinja {
namespace {

// a.b.0 of a value, or an item by number.
Value path(Interpreter& in, Value value, const Value& name) {
  if (name.integer()) return in.item(value, name);
  std::string_view rest = string_of(name).bytes;
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    const bool number =
        !part.empty() && part.size() < 9 && part.find_first_not_of("0123456789") == std::string_view::npos;
    value = in.item(value, number ? Value(static_cast<std::int64_t>(std::stoi(std::string(part)))) : Value::text(part));
    if (part.size() == rest.size()) return value;
    rest.remove_prefix(part.size() + 1);
  }
}

std::int64_t length(const Value& value) {
  if (const MarkedText* text = value.string()) return static_cast<std::int64_t>(length_of(text->bytes));
  if (value.list()) return static_cast<std::int64_t>(value.list()->items.size());
  if (value.dict()) return static_cast<std::int64_t>(value.dict()->items.size());
  if (value.is_undefined()) return 0;
  throw std::invalid_argument("length expected a string, list or mapping; found " + std::string(type_name(value)));
}

Value to_int(const Value& value, const Arguments& a) {
  const Value* standard = argument(a, 0, "default");
  const Value fallback = standard ? *standard : Value(std::int64_t{0});
  if (const auto integer = value.integer()) return Value(*integer);
  std::optional<double> number = value.number();
  if (const MarkedText* text = value.string()) {
    std::string digits = stripped(*text, nullptr, Side::both).bytes;
    if (digits.starts_with('+')) digits.erase(0, 1);
    std::int64_t integer = 0;
    const char* const end = digits.data() + digits.size();
    if (const auto r = std::from_chars(digits.data(), end, integer); r.ec == std::errc() && r.ptr == end)
      return Value(integer);
    double real = 0;
    if (const auto r = std::from_chars(digits.data(), end, real); r.ec == std::errc() && r.ptr == end) number = real;
  }
  if (!number || !(std::abs(*number) < 9e18)) return fallback;
  return Value(static_cast<std::int64_t>(*number));
}

Value to_float(const Value& value, const Arguments& a) {
  const Value* standard = argument(a, 0, "default");
  if (const auto number = value.number()) return Value(*number);
  if (const MarkedText* text = value.string()) {
    std::string digits = stripped(*text, nullptr, Side::both).bytes;
    if (digits.starts_with('+')) digits.erase(0, 1);
    double real = 0;
    const char* const end = digits.data() + digits.size();
    if (const auto r = std::from_chars(digits.data(), end, real);
        !digits.empty() && r.ec == std::errc() && r.ptr == end)
      return Value(real);
  }
  return standard ? *standard : Value(0.0);
}

Value round(const Value& value, const Arguments& a) {
  const Value *digits = argument(a, 0, "precision"), *way = argument(a, 1, "method");
  const std::int64_t places = std::clamp<std::int64_t>(digits ? integer_of(*digits) : 0, -300, 300);
  const std::string how = way ? string_of(*way).bytes : "common";
  if (!value.number()) throw std::invalid_argument("round expected a number; found " + std::string(type_name(value)));
  const double number = *value.number();
  if (how == "common") {
    if (value.integer() && places >= 0) return value;
    if (places < 0) {
      const double unit = std::pow(10.0, static_cast<double>(-places));
      const double rounded = std::nearbyint(number / unit) * unit;
      return value.integer() && std::abs(rounded) < 9e18 ? Value(static_cast<std::int64_t>(rounded)) : Value(rounded);
    }
    double rounded = number;
    const std::string text = fmt::format("{:.{}f}", number, places);
    std::from_chars(text.data(), text.data() + text.size(), rounded);
    return Value(rounded);
  }
  if (how != "ceil" && how != "floor")
    throw std::invalid_argument("round expected common, ceil or floor; found '" + how.substr(0, 40) + "'");
  const double unit = std::pow(10.0, static_cast<double>(places));
  return Value((how == "ceil" ? std::ceil(number * unit) : std::floor(number * unit)) / unit);
}

Value lowered(const Value& value, bool sensitive) {
  return !sensitive && value.string() ? Value::text(in_case(*value.string(), Case::lower)) : value;
}

// Items with what they are compared by.
std::vector<std::pair<Value, Value>> keyed(Interpreter& in, const Value& list, const Value* attribute, bool sensitive) {
  std::vector<std::pair<Value, Value>> items;
  for (Value& item : in.items_of(list)) {
    Value key = attribute && !attribute->is_none() ? path(in, item, *attribute) : item;
    if (key.string()) in.spend_bytes(key.string()->bytes.size());
    items.emplace_back(lowered(key, sensitive), std::move(item));
  }
  return items;
}
bool flag(const Arguments& a, std::size_t place, std::string_view name) {
  const Value* value = argument(a, place, name);
  return value && truth(*value);
}
Value without_keys(Interpreter& in, std::vector<std::pair<Value, Value>> items) {
  std::vector<Value> result;
  for (auto& [key, item] : items) result.push_back(std::move(item));
  return in.made(std::move(result));
}
void sort_keyed(Interpreter& in, std::vector<std::pair<Value, Value>>& items, bool reverse) {
  in.spend(items.size() * 20);
  // What compare() throws in the midst of a sort leaves the items whole: they are copies of pointers.
  if (reverse) std::reverse(items.begin(), items.end());
  std::stable_sort(items.begin(), items.end(), [&](const auto& a, const auto& b) {
    return reverse ? compare(b.first, a.first) < 0 : compare(a.first, b.first) < 0;
  });
  if (reverse) {  // equal ones stay in order
    for (std::size_t i = 0, j; i < items.size(); i = j) {
      for (j = i + 1; j < items.size() && compare(items[i].first, items[j].first) == 0; ++j) {
      }
      std::reverse(items.begin() + static_cast<std::ptrdiff_t>(i), items.begin() + static_cast<std::ptrdiff_t>(j));
    }
  }
}

Value extreme(Interpreter& in, const Value& value, const Arguments& a, bool largest) {
  auto items = keyed(in, value, argument(a, 1, "attribute"), flag(a, 0, "case_sensitive"));
  if (items.empty()) return Value::undefined("an extreme of no items");
  std::size_t best = 0;
  for (std::size_t i = 1; i < items.size(); ++i) {
    const int order = compare(items[i].first, items[best].first);
    if (largest ? order > 0 : order < 0) best = i;
  }
  return items[best].second;
}

Value map_items(Interpreter& in, const Value& value, Arguments& a) {
  std::vector<Value> result;
  const Value* attribute = a.given.empty() ? argument(a, 0, "attribute") : nullptr;
  const Value* standard = argument(a, a.given.size(), "default");
  if (!attribute && a.given.empty()) throw std::invalid_argument("map expected a filter or attribute=; found neither");
  for (const Value& item : in.items_of(value)) {
    if (attribute) {
      Value found = path(in, item, *attribute);
      result.push_back(found.is_undefined() && standard ? *standard : std::move(found));
    } else {
      Arguments rest{{a.given.begin() + 1, a.given.end()}, a.named};
      result.push_back(in.filter(string_of(a.given[0]).bytes, item, rest));
    }
  }
  return in.made(std::move(result));
}

Value select(Interpreter& in, const Value& value, Arguments& a, bool wanted, bool by_attribute) {
  std::vector<Value> result;
  const std::size_t skip = by_attribute ? 1 : 0;
  if (a.given.size() < skip) throw std::invalid_argument("expected the name of an attribute; found none");
  for (Value& item : in.items_of(value)) {
    const Value what = by_attribute ? path(in, item, a.given[0]) : item;
    bool good = false;
    if (a.given.size() > skip) {
      Arguments rest{{a.given.begin() + static_cast<std::ptrdiff_t>(skip) + 1, a.given.end()}, {}};
      good = in.test(string_of(a.given[skip]).bytes, what, rest);
    } else {
      good = truth(what);
    }
    if (good == wanted) result.push_back(std::move(item));
  }
  return in.made(std::move(result));
}

Value joined(Interpreter& in, const Value& value, const Arguments& a) {
  const Value *between = argument(a, 0, "d"), *attribute = argument(a, 1, "attribute");
  const MarkedText separator = between ? str(*between) : MarkedText();
  MarkedText out;
  bool first = true;
  for (const Value& item : in.items_of(value)) {
    if (!std::exchange(first, false)) out.add(separator);
    const MarkedText text = str(attribute ? path(in, item, *attribute) : item);
    in.spend_bytes(text.bytes.size() + separator.bytes.size());
    out.add(text);
  }
  return Value::text(std::move(out));
}

Value indented(Interpreter& in, const Value& value, const Arguments& a) {
  const Value* width = argument(a, 0, "width");
  const bool first = flag(a, 1, "first"), blank = flag(a, 2, "blank");
  MarkedText by =
      width && width->string()
          ? *width->string()
          : MarkedText(std::string(
                static_cast<std::size_t>(std::clamp<std::int64_t>(width ? integer_of(*width) : 4, 0, 1000)), ' '));
  const MarkedText text = str(value);
  MarkedText out;
  for (std::size_t begin = 0; begin <= text.bytes.size();) {
    const std::size_t end = std::min(text.bytes.find('\n', begin), text.bytes.size());
    if (begin == 0 ? first : blank || end > begin) {
      in.spend_bytes(by.bytes.size());
      out.add(by);
    }
    out.add(text.part(begin, std::min(end + 1, text.bytes.size())));
    begin = end + 1;
  }
  return in.made(std::move(out));
}

Value dictsort(Interpreter& in, const Value& value, const Arguments& a) {
  if (!value.dict()) throw std::invalid_argument("dictsort expected a mapping; found " + std::string(type_name(value)));
  const Value* by = argument(a, 1, "by");
  const bool by_value = by && string_of(*by).bytes == "value";
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [key, one] : value.dict()->items)
    items.emplace_back(lowered(by_value ? one : key, flag(a, 0, "case_sensitive")), make_list({key, one}, true));
  sort_keyed(in, items, flag(a, 2, "reverse"));
  return without_keys(in, std::move(items));
}

Value unique(Interpreter& in, const Value& value, const Arguments& a) {
  std::vector<Value> seen, result;
  for (auto& [key, item] : keyed(in, value, argument(a, 1, "attribute"), flag(a, 0, "case_sensitive"))) {
    in.spend(seen.size());
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& one) { return equal(one, key); })) continue;
    seen.push_back(key);
    result.push_back(item);
  }
  return in.made(std::move(result));
}

Value escaped(Interpreter& in, const Value& value) {
  MarkedText text = str(value);
  for (const auto& [from, to] :
       {std::pair{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&#34;"}, {"'", "&#39;"}}) {
    in.spend_bytes(text.bytes.size() * 5);
    text = replaced(text, from, MarkedText(to), -1);
  }
  return in.made(std::move(text));
}

using Filter = std::function<Value(Interpreter&, const Value&, Arguments&)>;

Filter cased(Case how) {
  return [how](Interpreter& in, const Value& value, Arguments&) { return in.made(in_case(str(value), how)); };
}

const std::map<std::string, Filter, std::less<>>& filters() {
  static const std::map<std::string, Filter, std::less<>> all = [] {
    std::map<std::string, Filter, std::less<>> f;
    f["upper"] = cased(Case::upper);
    f["lower"] = cased(Case::lower);
    f["title"] = cased(Case::title);
    f["capitalize"] = cased(Case::capitalized);
    f["trim"] = [](Interpreter& in, const Value& v, Arguments& a) {
      const Value* set = argument(a, 0, "chars");
      return in.made(stripped(str(v), set && !set->is_none() ? &string_of(*set).bytes : nullptr, Side::both));
    };
    f["length"] = f["count"] = [](Interpreter& in, const Value& v, Arguments&) {
      if (v.string()) in.spend(v.string()->bytes.size() / 64);
      return Value(length(v));
    };
    f["string"] = [](Interpreter& in, const Value& v, Arguments&) { return v.string() ? v : in.made(str(v)); };
    f["safe"] = [](Interpreter& in, const Value& v, Arguments&) { return v.string() ? v : in.made(str(v)); };
    f["escape"] = f["e"] = [](Interpreter& in, const Value& v, Arguments&) { return escaped(in, v); };
    f["tojson"] = [](Interpreter& in, const Value& v, Arguments& a) { return in.made(json_text(in, v, a)); };
    f["default"] = f["d"] = [](Interpreter&, const Value& v, Arguments& a) {
      const Value* standard = argument(a, 0, "default_value");
      const bool missing = v.is_undefined() || (flag(a, 1, "boolean") && !truth(v));
      return !missing ? v : standard ? *standard : Value::text("");
    };
    f["map"] = map_items;
    f["select"] = [](Interpreter& in, const Value& v, Arguments& a) { return select(in, v, a, true, false); };
    f["reject"] = [](Interpreter& in, const Value& v, Arguments& a) { return select(in, v, a, false, false); };
    f["selectattr"] = [](Interpreter& in, const Value& v, Arguments& a) { return select(in, v, a, true, true); };
    f["rejectattr"] = [](Interpreter& in, const Value& v, Arguments& a) { return select(in, v, a, false, true); };
    f["list"] = [](Interpreter& in, const Value& v, Arguments&) { return in.made(in.items_of(v)); };
    f["first"] = [](Interpreter& in, const Value& v, Arguments&) {
      const std::vector<Value> items = in.items_of(v);
      return items.empty() ? Value::undefined("the first of no items") : items.front();
    };
    f["last"] = [](Interpreter& in, const Value& v, Arguments&) {
      const std::vector<Value> items = in.items_of(v);
      return items.empty() ? Value::undefined("the last of no items") : items.back();
    };
    f["join"] = joined;
    f["replace"] = [](Interpreter& in, const Value& v, Arguments& a) {
      const Value *from = argument(a, 0, "old"), *to = argument(a, 1, "new"), *count = argument(a, 2, "count");
      if (!from || !to) throw std::invalid_argument("replace expected two strings; found fewer");
      const MarkedText text = str(v), with = str(*to);
      const std::string what = str(*from).bytes;
      in.spend_bytes((text.bytes.size() / std::max<std::size_t>(what.size(), 1) + 1) * with.bytes.size());
      return in.made(replaced(text, what, with, count && !count->is_none() ? integer_of(*count) : -1));
    };
    f["items"] = [](Interpreter& in, const Value& v, Arguments&) {
      if (v.is_undefined()) return in.made(std::vector<Value>());
      if (!v.dict()) throw std::invalid_argument("items expected a mapping; found " + std::string(type_name(v)));
      std::vector<Value> items;
      for (const auto& [key, value] : v.dict()->items) items.push_back(make_list({key, value}, true));
      return in.made(std::move(items));
    };
    f["dictsort"] = dictsort;
    f["int"] = [](Interpreter&, const Value& v, Arguments& a) { return to_int(v, a); };
    f["float"] = [](Interpreter&, const Value& v, Arguments& a) { return to_float(v, a); };
    f["round"] = [](Interpreter&, const Value& v, Arguments& a) { return round(v, a); };
    f["abs"] = [](Interpreter& in, const Value& v, Arguments&) {
      if (!v.number()) throw std::invalid_argument("abs expected a number; found " + std::string(type_name(v)));
      return *v.number() < 0 ? in.binary("*", v, Value(std::int64_t{-1})) : v.integer() ? Value(*v.integer()) : v;
    };
    f["min"] = [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, false); };
    f["max"] = [](Interpreter& in, const Value& v, Arguments& a) { return extreme(in, v, a, true); };
    f["sum"] = [](Interpreter& in, const Value& v, Arguments& a) {
      const Value *attribute = argument(a, 0, "attribute"), *start = argument(a, 1, "start");
      Value total = start ? *start : Value(std::int64_t{0});
      for (const Value& item : in.items_of(v))
        total = in.binary("+", total, attribute && !attribute->is_none() ? path(in, item, *attribute) : item);
      return total;
    };
    f["sort"] = [](Interpreter& in, const Value& v, Arguments& a) {
      auto items = keyed(in, v, argument(a, 2, "attribute"), flag(a, 1, "case_sensitive"));
      sort_keyed(in, items, flag(a, 0, "reverse"));
      return without_keys(in, std::move(items));
    };
    f["unique"] = unique;
    f["reverse"] = [](Interpreter& in, const Value& v, Arguments&) {
      if (v.string()) return sliced(in, v, Value::none(), Value::none(), Value(std::int64_t{-1}));
      std::vector<Value> items = in.items_of(v);
      std::reverse(items.begin(), items.end());
      return in.made(std::move(items));
    };
    f["indent"] = indented;
    f["attr"] = [](Interpreter& in, const Value& v, Arguments& a) {
      return a.given.size() == 1 ? in.attribute(v, string_of(a.given[0]).bytes) : Value();
    };
    f["batch"] = [](Interpreter& in, const Value& v, Arguments& a) {
      const Value* count = argument(a, 0, "linecount");
      if (!count || integer_of(*count) < 1) throw std::invalid_argument("batch expected a number of at least 1");
      std::vector<Value> result, part;
      for (Value& item : in.items_of(v)) {
        part.push_back(std::move(item));
        if (static_cast<std::int64_t>(part.size()) == integer_of(*count))
          result.push_back(in.made(std::exchange(part, {})));
      }
      if (!part.empty()) result.push_back(in.made(std::move(part)));
      return in.made(std::move(result));
    };
    f["wordcount"] = [](Interpreter& in, const Value& v, Arguments&) {
      Arguments none;
      return Value(length(in.call(in.attribute(Value::text(str(v)), "split"), none)));
    };
    return f;
  }();
  return all;
}

}  // namespace

Value Interpreter::filter(std::string_view name, const Value& value, Arguments& given) {
  spend();
  const auto found = filters().find(name);
  if (found == filters().end())
    throw std::invalid_argument("expected the name of a filter; found '" + std::string(name.substr(0, 60)) + "'");
  return found->second(*this, value, given);
}

}  // namespace qkv::jinja
