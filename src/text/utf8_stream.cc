// SPDX-License-Identifier: Apache-2.0
#include "qkv/tokenizer.h"
#include "text/utf8.h"

namespace qkv {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_ += bytes;
  std::string shown;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind == Utf8Step::unfinished) break;
    shown += step.kind == Utf8Step::valid ? rest.substr(0, step.length) : kReplacement;
    rest.remove_prefix(step.length);
  }
  held_ = std::string(rest);
  return shown;
}

std::string Utf8Stream::flush() {
  std::string shown(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return shown;
}

}  // namespace qkv
