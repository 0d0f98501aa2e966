// SPDX-License-Identifier: Apache-2.0
#include "jinja/compare.h"

#include <stdexcept>

namespace qkv::jinja {

bool equal(const Value& a, const Value& b, int depth) {
  if (depth > kDeepestValue) throw std::invalid_argument("expected values nested less deep");
  if (a.number() && b.number()) return *a.number() == *b.number();
  if (a.is.index() != b.is.index()) return false;
  if (a.string()) return a.string()->bytes == b.string()->bytes;
  if (const Sequence* left = a.list()) {
    const Sequence* right = b.list();
    if (left->tuple != right->tuple || left->items.size() != right->items.size()) return false;
    for (std::size_t i = 0; i < left->items.size(); ++i)
      if (!equal(left->items[i], right->items[i], depth + 1)) return false;
    return true;
  }
  if (const Mapping* left = a.dict()) {
    if (left->items.size() != b.dict()->items.size()) return false;
    for (const auto& [key, value] : left->items) {
      const Value* other = b.dict()->find(key);
      if (!other || !equal(value, *other, depth + 1)) return false;
    }
    return true;
  }
  if (a.space()) return a.space() == b.space();
  if (a.callable()) return a.callable() == b.callable();
  return true;  // undefined, none
}

int compare(const Value& a, const Value& b, int depth) {
  if (depth > kDeepestValue) throw std::invalid_argument("expected values nested less deep");
  if (a.number() && b.number()) return *a.number() < *b.number() ? -1 : *a.number() > *b.number();
  if (a.string() && b.string()) return a.string()->bytes.compare(b.string()->bytes);
  if (a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    const auto &left = a.list()->items, &right = b.list()->items;
    for (std::size_t i = 0; i < left.size() && i < right.size(); ++i)
      if (!equal(left[i], right[i], depth + 1)) return compare(left[i], right[i], depth + 1);
    return left.size() < right.size() ? -1 : left.size() > right.size();
  }
  throw std::invalid_argument("expected two numbers, strings or lists to compare; found " + std::string(type_name(a)) +
                              " and " + std::string(type_name(b)));
}

bool contains(const Value& in, const Value& item) {
  if (const MarkedText* text = in.string()) {
    if (!item.string())
      throw std::invalid_argument("expected a string before `in`; found " + std::string(type_name(item)));
    return text->bytes.find(item.string()->bytes) != std::string::npos;
  }
  if (const Sequence* list = in.list()) {
    for (const Value& one : list->items)
      if (equal(one, item)) return true;
    return false;
  }
  if (const Mapping* dict = in.dict()) return dict->find(item) != nullptr;
  if (in.is_undefined()) return false;
  throw std::invalid_argument("expected a string, list or mapping after `in`; found " + std::string(type_name(in)));
}

}  // namespace qkv::jinja
