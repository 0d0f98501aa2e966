// SPDX-License-Identifier: Apache-2.0
#include "qkv/repetition.h"

#include <cstddef>
#include <unordered_set>

namespace qkv {

double repetition(std::string_view text) {
  constexpr std::size_t kStretch = 32;
  if (text.size() <= kStretch) return 0;
  std::unordered_set<std::string_view> seen;
  std::size_t covered = 0, end = 0;  // bytes counted, and the end of the last counted stretch
  for (std::size_t at = 0; at + kStretch <= text.size(); ++at) {
    if (seen.insert(text.substr(at, kStretch)).second) continue;
    covered += at + kStretch - (end > at ? end : at);
    end = at + kStretch;
  }
  return static_cast<double>(covered) / static_cast<double>(text.size());
}

}  // namespace qkv
