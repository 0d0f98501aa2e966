// SPDX-License-Identifier: Apache-2.0
#include "text/splitter.h"

#include <cstdint>
#include <cstring>

#include "text/gpt2_split.h"
#include "text/oniguruma.h"
#include "text/utf8.h"

namespace qkv {
namespace {

// The first non-ASCII byte from `at` on, or up to 7 bytes before it.
std::size_t skip_ascii(std::string_view text, std::size_t at) noexcept {
  std::uint64_t eight = 0;
  for (; at + sizeof eight <= text.size(); at += sizeof eight) {
    std::memcpy(&eight, text.data() + at, sizeof eight);
    if (eight & 0x8080808080808080u) break;
  }
  return at;
}

}  // namespace

Splitter::Splitter(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    stages_.emplace_back(from_oniguruma(pattern));
    gpt2_.push_back(pattern == kGpt2Pattern);
  }
}

void Splitter::split(std::string_view text, const Take& take) const {
  Matchers matchers;
  for (const Pattern& stage : stages_) matchers.emplace_back(stage);
  std::size_t begin = 0, at = 0;  // [begin, at) is valid UTF-8
  while ((at = skip_ascii(text, at)) < text.size()) {
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
  const bool gpt2 = gpt2_[stage], last = stage + 1 == stages_.size();
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t end = gpt2 ? gpt2_piece_end(text, at) : 0) {
      const std::string_view piece = text.substr(at, end - at);
      at = end;
      last ? take(piece) : cut(piece, stage + 1, matchers, take);
      continue;
    }
    const Pattern::Match match = matchers[stage].find(text, at);
    cut(text.substr(at, match.begin - at), stage + 1, matchers, take);
    cut(text.substr(match.begin, match.end - match.begin), stage + 1, matchers, take);
    at = match.end;
  }
}

}  // namespace qkv
