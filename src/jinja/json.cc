// SPDX-License-Identifier: Apache-2.0
// tojson as transformers defines it: json.dumps.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "jinja/compare.h"
#include "jinja/interpreter.h"

namespace qkv::jinja {
namespace {

struct Style {
  bool ascii = false, sort = false, indented = false;
  MarkedText indent, item = MarkedText(", "), key = MarkedText(": ");
};

void add_string(MarkedText& out, const MarkedText& text, bool ascii) {
  out.add("\"");
  for (std::size_t i = 0; i < text.bytes.size();) {
    const CodePoint point = code_point(text.bytes, i);
    const char32_t c = point.value;
    const Mark mark = text.mark_at(i);
    constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    const std::size_t which = c < 128 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
    if (which != std::string_view::npos)
      out.add(std::string{'\\', kTo[which]}, mark);
    else if (c < 32 || (ascii && c > 126 && c < 0x10000))
      out.add(c == 127 ? "\x7f" : fmt::format("\\u{:04x}", static_cast<unsigned>(c)), mark);
    else if (ascii && c >= 0x10000)
      out.add(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((static_cast<unsigned>(c) - 0x10000) >> 10),
                          0xDC00 + ((static_cast<unsigned>(c) - 0x10000) & 0x3FF)),
              mark);
    else
      out.add(std::string_view(text.bytes).substr(i, point.length), mark);
    i += point.length;
  }
  out.add("\"");
}

std::string scalar(const Value& value) {
  if (value.is_none()) return "null";
  if (const auto* b = value.get<bool>()) return *b ? "true" : "false";
  if (const auto i = value.integer()) return std::to_string(*i);
  if (const auto* d = value.get<double>())
    return std::isnan(*d) ? "NaN" : std::isinf(*d) ? (*d < 0 ? "-Infinity" : "Infinity") : number_text(*d);
  throw std::invalid_argument("tojson expected strings, numbers, lists and mappings; found " +
                              std::string(type_name(value)));
}

void add(Interpreter& in, MarkedText& out, const Value& value, const Style& style, std::size_t depth) {
  in.spend();
  if (out.bytes.size() > (std::size_t{1} << 20)) in.spend_bytes(64);
  if (value.string()) return add_string(out, *value.string(), style.ascii);
  const auto line = [&](std::size_t deep) {
    if (!style.indented) return;
    out.add("\n");
    for (std::size_t i = 0; i < deep; ++i) in.spend_bytes(style.indent.bytes.size()), out.add(style.indent);
  };
  if (const Sequence* list = value.list()) {
    if (list->items.empty()) return out.add("[]");
    out.add("[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.add(style.item);
      line(depth + 1);
      add(in, out, list->items[i], style, depth + 1);
    }
    line(depth);
    return out.add("]");
  }
  if (const Mapping* dict = value.dict()) {
    if (dict->items.empty()) return out.add("{}");
    std::vector<std::pair<Value, Value>> items = dict->items;
    if (style.sort)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto& a, const auto& b) { return compare(a.first, b.first) < 0; });
    out.add("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out.add(style.item);
      line(depth + 1);
      const Value& key = items[i].first;
      add_string(out, key.string() ? *key.string() : MarkedText(scalar(key)), style.ascii);
      out.add(style.key);
      add(in, out, items[i].second, style, depth + 1);
    }
    line(depth);
    return out.add("}");
  }
  out.add(scalar(value));
}

}  // namespace

MarkedText json_text(Interpreter& in, const Value& value, Arguments& arguments) {
  check_count(arguments, 4);
  Style style;
  if (const Value* ascii = argument(arguments, 0, "ensure_ascii")) style.ascii = truth(*ascii);
  if (const Value* indent = argument(arguments, 1, "indent"); indent && !indent->is_none()) {
    style.indented = true;
    style.item = MarkedText(",");
    if (indent->string())
      style.indent = *indent->string();
    else
      style.indent = MarkedText(
          std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(integer_of(*indent), 0, 1000)), ' '));
  }
  if (const Value* separators = argument(arguments, 2, "separators"); separators && !separators->is_none()) {
    const std::vector<Value> two = in.items_of(*separators);
    if (two.size() != 2)
      throw std::invalid_argument("tojson expected two separators; found " + std::to_string(two.size()));
    style.item = string_of(two[0]), style.key = string_of(two[1]);
  }
  if (const Value* sort = argument(arguments, 3, "sort_keys")) style.sort = truth(*sort);
  MarkedText out;
  add(in, out, value, style, 0);
  return out;
}

}  // namespace qkv::jinja
