// SPDX-License-Identifier: Apache-2.0
#include "text/splitter.h"

#include "text/utf8.h"

namespace qkv {

Splitter::Splitter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) stages_.emplace_back(pattern);
}

void Splitter::split(std::string_view text, const Take& take) const {
  Matchers matchers;
  for (const Pattern& stage : stages_) matchers.emplace_back(stage);
  std::size_t begin = 0, at = 0;  // [begin, at) is valid UTF-8
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.kind == Utf8Step::valid) {
      at += step.length;
      continue;
    }
    cut(text.substr(begin, at - begin), 0, matchers, take);
    for (std::size_t i = 0; i < step.length; ++i) take(text.substr(at + i, 1));
    begin = at += step.length;
  }
  cut(text.substr(begin), 0, matchers, take);
}

void Splitter::cut(std::string_view text, std::size_t stage, Matchers& matchers, const Take& take) const {
  if (text.empty()) return;
  if (stage == stages_.size()) return take(text);
  for (std::size_t at = 0; at < text.size();) {
    const Pattern::Match match = matchers[stage].find(text, at);
    cut(text.substr(at, match.begin - at), stage + 1, matchers, take);
    cut(text.substr(match.begin, match.end - match.begin), stage + 1, matchers, take);
    at = match.end;
  }
}

}  // namespace qkv
