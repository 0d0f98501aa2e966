// SPDX-License-Identifier: Apache-2.0
#include "text/normalise.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <new>

#include "text/utf8.h"

namespace qkv {
namespace {

int options_of(Normaliser form) {
  switch (form) {
    case Normaliser::nfc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    case Normaliser::nfd:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case Normaliser::nfkc:
      return UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT;
    case Normaliser::nfkd:
      break;
  }
  return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
}

// `text` is valid UTF-8.
void append_form(std::string_view text, Normaliser form, std::string& result) {
  if (text.empty()) return;
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &mapped, static_cast<utf8proc_option_t>(options_of(form)));
  const std::unique_ptr<utf8proc_uint8_t, void (*)(void*)> owner(mapped, std::free);
  if (size < 0) throw std::bad_alloc();  // the only possible error for valid UTF-8
  result.append(reinterpret_cast<const char*>(mapped), static_cast<std::size_t>(size));
}

std::string in_form(std::string_view text, Normaliser form) {
  std::string result;
  std::size_t begin = 0, at = 0;  // [begin, at) is valid
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind == Utf8Step::valid) {
      at += step.length;
      continue;
    }
    append_form(text.substr(begin, at - begin), form, result);
    result += text.substr(at, step.length);
    begin = at += step.length;
  }
  append_form(text.substr(begin), form, result);
  return result;
}

}  // namespace

std::string normalise(std::string_view text, std::span<const Normaliser> forms) {
  std::string result(text);
  for (const Normaliser form : forms) result = in_form(result, form);
  return result;
}

}  // namespace qkv
