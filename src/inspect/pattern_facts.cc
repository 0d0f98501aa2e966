// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "qkv/inspect.h"

namespace qkv {

std::vector<HeadId> all_heads(const ModelConfig& config) {
  std::vector<HeadId> heads;
  for (std::int64_t l = 0; l < config.n_layer; ++l)
    for (std::int64_t h = 0; h < config.layer(l).n_head; ++h) heads.push_back({l, h});
  return heads;
}

PatternFacts pattern_facts(std::span<const float> row) {
  PatternFacts f;
  for (const double p : row)
    if (p > 0) f.entropy -= p * std::log(p);
  f.first = row.front();
  f.previous = row.size() > 1 ? row[row.size() - 2] : 0;
  f.own = row.back();
  return f;
}

PatternFacts mean_pattern_facts(std::span<const float> pattern, std::int64_t ctx) {
  PatternFacts mean;
  const std::int64_t begin = ctx > 2 ? 2 : 0;
  for (std::int64_t i = begin; i < ctx; ++i) {
    const PatternFacts f =
        pattern_facts(pattern.subspan(static_cast<std::size_t>(i * ctx), static_cast<std::size_t>(i + 1)));
    mean.entropy += f.entropy;
    mean.first += f.first;
    mean.previous += f.previous;
    mean.own += f.own;
  }
  for (double* x : {&mean.entropy, &mean.first, &mean.previous, &mean.own}) *x /= static_cast<double>(ctx - begin);
  return mean;
}

std::vector<std::int64_t> top_keys(std::span<const float> row, std::size_t top) {
  std::vector<std::int64_t> keys(row.size());
  std::iota(keys.begin(), keys.end(), 0);
  const auto weight = [&](std::int64_t j) {
    const float w = row[static_cast<std::size_t>(j)];
    return std::isnan(w) ? -1.0F : w;
  };
  std::stable_sort(keys.begin(), keys.end(), [&](std::int64_t a, std::int64_t b) { return weight(a) > weight(b); });
  keys.resize(std::min(keys.size(), top));
  return keys;
}

}  // namespace qkv
