// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists and mappings, "%" and dates. Methods that change a list or mapping do not exist, as in the
// sandbox that transformers uses.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "jinja/compare.h"
#include "jinja/interpreter.h"

namespace qkv::jinja {
namespace {

using Method = std::function<Value(Interpreter&, Arguments&)>;

Value function(std::string_view name, Method call) {
  auto made = std::make_shared<Callable>();
  made->name = name;
  made->call = std::move(call);
  return Value(std::move(made));
}

const Value& needed(const Arguments& arguments, std::size_t place, std::string_view name) {
  if (const Value* value = argument(arguments, place, name)) return *value;
  throw std::invalid_argument("expected an argument '" + std::string(name) + "'; found none");
}

Value split(Interpreter& in, const MarkedText& text, Arguments& arguments, bool from_right) {
  check_count(arguments, 2);
  const Value* separator = argument(arguments, 0, "sep");
  const Value* most = argument(arguments, 1, "maxsplit");
  std::int64_t left = most ? integer_of(*most) : -1;
  std::vector<Value> parts;
  in.spend_bytes(text.bytes.size() * 4);
  if (separator && !separator->is_none()) {
    const std::string& mark = string_of(*separator).bytes;
    if (mark.empty()) throw std::invalid_argument("split expected a separator; found an empty one");
    std::size_t begin = 0, end = text.bytes.size();
    if (from_right) {
      while (left-- != 0 && end >= mark.size()) {
        const std::size_t at = text.bytes.rfind(mark, end - mark.size());
        if (at == std::string::npos) break;
        parts.push_back(Value::text(text.part(at + mark.size(), end)));
        end = at;
      }
      parts.push_back(Value::text(text.part(0, end)));
      std::reverse(parts.begin(), parts.end());
    } else {
      for (std::size_t at; left-- != 0 && (at = text.bytes.find(mark, begin)) != std::string::npos;
           begin = at + mark.size())
        parts.push_back(Value::text(text.part(begin, at)));
      parts.push_back(Value::text(text.part(begin, end)));
    }
    return in.made(std::move(parts));
  }
  if (from_right && left >= 0)
    throw std::invalid_argument("rsplit expected a separator where a number of splits is given; found none");
  const std::vector<std::size_t> at = boundaries(text.bytes);
  const std::size_t count = at.size() - 1;
  const auto space = [&](std::size_t i) { return is_space(code_point(text.bytes, at[i]).value); };
  for (std::size_t i = 0; i < count;) {
    while (i < count && space(i)) ++i;
    if (i == count) break;
    const std::size_t begin = i;
    if (left-- == 0) {
      parts.push_back(Value::text(stripped(text.part(at[begin], text.bytes.size()), nullptr, Side::right)));
      break;
    }
    while (i < count && !space(i)) ++i;
    parts.push_back(Value::text(text.part(at[begin], at[i])));
  }
  return in.made(std::move(parts));
}

bool affixed(const MarkedText& text, const Value& with, bool start) {
  if (with.list() && with.list()->tuple)
    return std::any_of(with.list()->items.begin(), with.list()->items.end(),
                       [&](const Value& one) { return affixed(text, one, start); });
  const std::string& part = string_of(with).bytes;
  return start ? text.bytes.starts_with(part) : text.bytes.ends_with(part);
}

// "{} {0} {name}".format(...), without format specifications.
MarkedText format(const MarkedText& text, const Arguments& arguments) {
  MarkedText out;
  std::size_t next = 0;
  for (std::size_t i = 0; i < text.bytes.size(); ++i) {
    const char c = text.bytes[i];
    if ((c == '{' || c == '}') && i + 1 < text.bytes.size() && text.bytes[i + 1] == c) {
      out.add(text.part(i, i + 1));
      ++i;
    } else if (c == '{') {
      const std::size_t end = text.bytes.find('}', i);
      if (end == std::string::npos) throw std::invalid_argument("format expected '}' after '{'; found none");
      const std::string field = text.bytes.substr(i + 1, end - i - 1);
      const bool numbered = !field.empty() && field.find_first_not_of("0123456789") == std::string::npos;
      if (field.find_first_of(".[:!") != std::string::npos)
        throw std::invalid_argument("format expected fields that are names or numbers; found '" + field.substr(0, 40) +
                                    "'");
      const Value* value = nullptr;
      if (field.empty())
        value = argument(arguments, next++, "\n");
      else if (numbered)
        value = field.size() < 6 ? argument(arguments, static_cast<std::size_t>(std::stoi(field)), "\n") : nullptr;
      else
        value = argument(arguments, arguments.given.size(), field);
      if (!value)
        throw std::invalid_argument("format expected a value for '{" + field.substr(0, 40) + "}'; found none");
      out.add(str(*value));
      i = end;
    } else if (c == '}') {
      throw std::invalid_argument("format expected '{' before '}'; found none");
    } else {
      out.add(text.part(i, i + 1));
    }
  }
  return out;
}

bool all_of(const MarkedText& text, bool (*good)(char)) {
  return !text.bytes.empty() && std::all_of(text.bytes.begin(), text.bytes.end(), good);
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

Value join(Interpreter& in, const MarkedText& separator, const Value& list) {
  MarkedText out;
  bool first = true;
  for (const Value& item : in.items_of(list)) {
    if (!std::exchange(first, false)) out.add(separator);
    const MarkedText& text = string_of(item);
    in.spend_bytes(text.bytes.size() + separator.bytes.size());
    out.add(text);
  }
  return Value::text(std::move(out));
}

Method string_method(const Text& self, std::string_view name) {
  const auto strip = [&](Side side) -> Method {
    return [self, side](Interpreter& in, Arguments& a) {
      const Value* set = argument(a, 0, "chars");
      return in.made(stripped(*self, set && !set->is_none() ? &string_of(*set).bytes : nullptr, side));
    };
  };
  const auto cased = [&](Case how) -> Method {
    return [self, how](Interpreter& in, Arguments&) { return in.made(in_case(*self, how)); };
  };
  const auto asks = [&](bool (*good)(char)) -> Method {
    return [self, good](Interpreter&, Arguments&) { return Value(all_of(*self, good)); };
  };
  if (name == "strip") return strip(Side::both);
  if (name == "lstrip") return strip(Side::left);
  if (name == "rstrip") return strip(Side::right);
  if (name == "upper") return cased(Case::upper);
  if (name == "lower") return cased(Case::lower);
  if (name == "title") return cased(Case::title);
  if (name == "capitalize") return cased(Case::capitalized);
  if (name == "isdigit" || name == "isnumeric") return asks(is_digit);
  if (name == "isalpha") return asks(is_letter);
  if (name == "isalnum") return asks([](char c) { return is_digit(c) || is_letter(c); });
  if (name == "isspace")
    return [self](Interpreter&, Arguments&) {
      return Value(!self->bytes.empty() && stripped(*self, nullptr, Side::both).bytes.empty());
    };
  if (name == "split" || name == "rsplit")
    return [self, right = name == "rsplit"](Interpreter& in, Arguments& a) { return split(in, *self, a, right); };
  if (name == "splitlines")
    return [self](Interpreter& in, Arguments&) {
      std::vector<Value> lines;
      in.spend_bytes(self->bytes.size() * 4);
      for (std::size_t begin = 0; begin < self->bytes.size();) {
        const std::size_t end = std::min(self->bytes.find_first_of("\r\n", begin), self->bytes.size());
        lines.push_back(Value::text(self->part(begin, end)));
        begin = end + (self->bytes.compare(end, 2, "\r\n") == 0 ? 2 : 1);
      }
      return in.made(std::move(lines));
    };
  if (name == "startswith" || name == "endswith")
    return [self, start = name == "startswith"](Interpreter&, Arguments& a) {
      check_count(a, 1);
      return Value(affixed(*self, needed(a, 0, "prefix"), start));
    };
  if (name == "replace")
    return [self](Interpreter& in, Arguments& a) {
      check_count(a, 3);
      const MarkedText &from = string_of(needed(a, 0, "old")), &to = string_of(needed(a, 1, "new"));
      const Value* count = argument(a, 2, "count");
      in.spend_bytes((self->bytes.size() / std::max<std::size_t>(from.bytes.size(), 1) + 1) * to.bytes.size());
      return in.made(replaced(*self, from.bytes, to, count ? integer_of(*count) : -1));
    };
  if (name == "removeprefix" || name == "removesuffix")
    return [self, start = name == "removeprefix"](Interpreter& in, Arguments& a) {
      const std::string& part = string_of(needed(a, 0, "prefix")).bytes;
      const std::size_t size = self->bytes.size();
      if (!affixed(*self, needed(a, 0, "prefix"), start)) return Value(self);
      return in.made(start ? self->part(part.size(), size) : self->part(0, size - part.size()));
    };
  if (name == "find" || name == "rfind" || name == "index")
    return [self, name = std::string(name)](Interpreter& in, Arguments& a) {
      check_count(a, 1);
      const std::string& part = string_of(needed(a, 0, "sub")).bytes;
      in.spend(self->bytes.size() / 64);
      const std::size_t at = name == "rfind" ? self->bytes.rfind(part) : self->bytes.find(part);
      if (at == std::string::npos && name == "index")
        throw std::invalid_argument("index expected a part of the string; found another");
      return Value(at == std::string::npos
                       ? std::int64_t{-1}
                       : static_cast<std::int64_t>(length_of(std::string_view(self->bytes).substr(0, at))));
    };
  if (name == "count")
    return [self](Interpreter&, Arguments& a) {
      const std::string& part = string_of(needed(a, 0, "sub")).bytes;
      std::int64_t count = 0;
      if (part.empty()) return Value(static_cast<std::int64_t>(length_of(self->bytes)) + 1);
      for (std::size_t at = self->bytes.find(part); at != std::string::npos;
           at = self->bytes.find(part, at + part.size()))
        ++count;
      return Value(count);
    };
  if (name == "partition" || name == "rpartition")
    return [self, right = name == "rpartition"](Interpreter& in, Arguments& a) {
      const std::string& mark = string_of(needed(a, 0, "sep")).bytes;
      if (mark.empty()) throw std::invalid_argument("partition expected a separator; found an empty one");
      const std::size_t at = right ? self->bytes.rfind(mark) : self->bytes.find(mark);
      in.spend_bytes(self->bytes.size());
      if (at == std::string::npos)
        return in.made(right ? std::vector<Value>{Value::text(""), Value::text(""), Value(self)}
                             : std::vector<Value>{Value(self), Value::text(""), Value::text("")},
                       true);
      return in.made({Value::text(self->part(0, at)), Value::text(self->part(at, at + mark.size())),
                      Value::text(self->part(at + mark.size(), self->bytes.size()))},
                     true);
    };
  if (name == "join")
    return [self](Interpreter& in, Arguments& a) { return join(in, *self, needed(a, 0, "iterable")); };
  if (name == "format") return [self](Interpreter& in, Arguments& a) { return in.made(format(*self, a)); };
  return {};
}

Method dict_method(const std::shared_ptr<const Mapping>& self, std::string_view name) {
  if (name == "items" || name == "keys" || name == "values")
    return [self, name = std::string(name)](Interpreter& in, Arguments& a) {
      check_count(a, 0);
      std::vector<Value> items;
      in.spend(self->items.size());
      for (const auto& [key, value] : self->items)
        items.push_back(name == "keys" ? key : name == "values" ? value : make_list({key, value}, true));
      return in.made(std::move(items));
    };
  if (name == "get")
    return [self](Interpreter& in, Arguments& a) {
      check_count(a, 2);
      in.spend(self->items.size() / 8);
      if (const Value* value = self->find(needed(a, 0, "key"))) return *value;
      const Value* standard = argument(a, 1, "default");
      return standard ? *standard : Value::none();
    };
  if (name == "copy") return [self](Interpreter&, Arguments&) { return Value(self); };
  return {};
}

Method list_method(const std::shared_ptr<const Sequence>& self, std::string_view name) {
  if (name == "index")
    return [self](Interpreter& in, Arguments& a) {
      const Value& what = needed(a, 0, "value");
      in.spend(self->items.size());
      for (std::size_t i = 0; i < self->items.size(); ++i)
        if (equal(self->items[i], what)) return Value(static_cast<std::int64_t>(i));
      throw std::invalid_argument("index expected an item of the list; found another value");
    };
  if (name == "count")
    return [self](Interpreter& in, Arguments& a) {
      const Value& what = needed(a, 0, "value");
      in.spend(self->items.size());
      return Value(static_cast<std::int64_t>(
          std::count_if(self->items.begin(), self->items.end(), [&](const Value& one) { return equal(one, what); })));
    };
  if (name == "copy" && !self->tuple) return [self](Interpreter&, Arguments&) { return Value(self); };
  return {};
}

bool changes(const Value& of, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (of.list()) return !of.list()->tuple && std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  return of.dict() && std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
}

}  // namespace

Value method(const Value& of, std::string_view name) {
  Method found;
  if (const Text* text = of.get<Text>()) found = string_method(*text, name);
  if (const auto* dict = of.get<std::shared_ptr<const Mapping>>()) found = dict_method(*dict, name);
  if (const auto* list = of.get<std::shared_ptr<const Sequence>>()) found = list_method(*list, name);
  if (changes(of, name))
    found = [name = std::string(name)](Interpreter&, Arguments&) -> Value {
      throw std::invalid_argument(
          "expected a method that changes nothing (templates run in an immutable sandbox); found '" + name + "'");
    };
  return found ? function(name, std::move(found)) : Value();
}

MarkedText formatted(const MarkedText& pattern, const Value& values) {
  const Sequence* list = values.list() && values.list()->tuple ? values.list() : nullptr;
  std::size_t next = 0;
  MarkedText out;
  for (std::size_t i = 0; i < pattern.bytes.size(); ++i) {
    if (pattern.bytes[i] != '%') {
      out.add(pattern.part(i, i + 1));
      continue;
    }
    if (++i >= pattern.bytes.size())
      throw std::invalid_argument("expected a letter after '%' at the end of a string; found none");
    const char kind = pattern.bytes[i];
    if (kind == '%') {
      out.add("%");
      continue;
    }
    const bool has = list ? next < list->items.size() : next == 0;
    if (!has) throw std::invalid_argument("expected a value for each '%' of a string; found fewer");
    const Value& value = list ? list->items[next] : values;
    ++next;
    if (kind == 's')
      out.add(str(value));
    else if (kind == 'r')
      out.add(repr(value));
    else if ((kind == 'd' || kind == 'i') && value.number() && std::abs(*value.number()) < 9e18)
      out.add(std::to_string(value.integer() ? *value.integer() : static_cast<std::int64_t>(*value.number())));
    else if (kind == 'f' && value.number())
      out.add(fmt::format("{:.6f}", *value.number()));
    else
      throw std::invalid_argument(std::string("expected %s, %r, %d or %f with a value that fits; found %") + kind +
                                  " and " + std::string(type_name(value)));
  }
  if (next < (list ? list->items.size() : std::size_t{values.dict() ? 0u : 1u}))
    throw std::invalid_argument("expected a '%' for each value; found fewer");
  return out;
}

std::string date_text(std::string_view format, const std::tm& time) {
  constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
  constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                     "July",    "August",   "September", "October", "November", "December"};
  const std::string day = kDays[std::clamp(time.tm_wday, 0, 6)], month = kMonths[std::clamp(time.tm_mon, 0, 11)];
  const int hour = time.tm_hour % 12 == 0 ? 12 : time.tm_hour % 12;
  std::string out;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const bool bare = format[++i] == '-' && i + 1 < format.size();
    if (bare) ++i;
    const auto two = [&](int value) { return bare ? std::to_string(value) : fmt::format("{:02}", value); };
    switch (format[i]) {
      case 'a':
        out += day.substr(0, 3);
        break;
      case 'A':
        out += day;
        break;
      case 'b':
      case 'h':
        out += month.substr(0, 3);
        break;
      case 'B':
        out += month;
        break;
      case 'd':
        out += two(time.tm_mday);
        break;
      case 'e':
        out += bare ? std::to_string(time.tm_mday) : fmt::format("{:2}", time.tm_mday);
        break;
      case 'H':
        out += two(time.tm_hour);
        break;
      case 'I':
        out += two(hour);
        break;
      case 'j':
        out += bare ? std::to_string(time.tm_yday + 1) : fmt::format("{:03}", time.tm_yday + 1);
        break;
      case 'm':
        out += two(time.tm_mon + 1);
        break;
      case 'M':
        out += two(time.tm_min);
        break;
      case 'p':
        out += time.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'S':
        out += two(time.tm_sec);
        break;
      case 'y':
        out += two(time.tm_year % 100);
        break;
      case 'Y':
        out += std::to_string(time.tm_year + 1900);
        break;
      case 'F':
        out += date_text("%Y-%m-%d", time);
        break;
      case 'D':
      case 'x':
        out += date_text("%m/%d/%y", time);
        break;
      case 'T':
      case 'X':
        out += date_text("%H:%M:%S", time);
        break;
      case 'R':
        out += date_text("%H:%M", time);
        break;
      case 'c':
        out += date_text("%a %b %e %H:%M:%S %Y", time);
        break;
      case 'n':
        out += '\n';
        break;
      case 't':
        out += '\t';
        break;
      case '%':
        out += '%';
        break;
      case 'z':
      case 'Z':
        break;  // a time without a zone
      default:
        throw std::invalid_argument(
            std::string("strftime_now expected one of the fields %aAbBcdDeFhHIjmMnpRStTxXyY%; found %") + format[i]);
    }
  }
  return out;
}

}  // namespace qkv::jinja
