// SPDX-License-Identifier: Apache-2.0
#include "nearest_word.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace qkv::cli {
namespace {

// Optimal string alignment distance.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> cost(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) cost[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) cost[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = cost[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      cost[i][j] = std::min({cost[i - 1][j] + 1, cost[i][j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        cost[i][j] = std::min(cost[i][j], cost[i - 2][j - 2] + 1);
    }
  }
  return cost[a.size()][b.size()];
}

}  // namespace

std::string nearest_word(std::string_view word, std::span<const std::string> words) {
  constexpr std::size_t kLongest = 64;  // longer input is not a typo; the cost is quadratic
  if (word.size() > kLongest) return "";
  std::string nearest;
  std::size_t least = (word.size() + 2) / 3 + 1;
  for (const std::string& candidate : words) {
    const std::size_t changes = distance(word, candidate);
    if (changes < least) {
      least = changes;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace qkv::cli
