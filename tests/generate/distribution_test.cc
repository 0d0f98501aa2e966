// SPDX-License-Identifier: Apache-2.0
// 100,000 samples compared with the distribution defined in qkv/sampler.h, computed here independently.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "qkv/sampler.h"

namespace {

constexpr int kDraws = 100000;
constexpr float kInf = std::numeric_limits<float>::infinity();

using Ids = std::vector<std::int32_t>;
using Probabilities = std::map<std::int32_t, long double>;  // of the tokens that can be sampled

Probabilities softmax(const std::map<std::int32_t, long double>& logits, long double temperature = 1) {
  Probabilities result;
  long double highest = -std::numeric_limits<long double>::infinity(), total = 0;
  for (const auto& [id, logit] : logits) highest = std::max(highest, logit);
  for (const auto& [id, logit] : logits) total += result[id] = std::exp((logit - highest) / temperature);
  for (auto& [id, p] : result) p /= total;
  return result;
}

// Keeps ids in the order of `cost` (ties: the lower id first) until their total probability reaches `wanted`.
template <class Cost>
std::set<std::int32_t> nucleus(const Probabilities& of, long double wanted, const Cost& cost) {
  std::vector<std::pair<long double, std::int32_t>> order;
  for (const auto& [id, p] : of) order.emplace_back(cost(p), id);
  std::sort(order.begin(), order.end());
  std::set<std::int32_t> kept;
  long double sum = 0;
  for (const auto& [price, id] : order) {
    if (!kept.empty() && sum >= wanted) break;
    kept.insert(id);
    sum += of.at(id);
  }
  return kept;
}

Probabilities expected(const qkv::SamplerOptions& o, const std::vector<float>& given, const Ids& history) {
  std::map<std::int32_t, long double> logits;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    long double logit = given[i];
    for (const qkv::LogitBias& bias : o.logit_bias) logit += bias.id == id ? bias.value : 0;
    const auto seen = o.repeat_last_n < 0 ? history.size() : std::min<std::size_t>(history.size(), o.repeat_last_n);
    const auto n = std::count(history.end() - static_cast<std::ptrdiff_t>(seen), history.end(), id);
    if (n > 0) {
      logit = logit > 0 ? logit / o.repeat_penalty : logit * o.repeat_penalty;
      logit -= n * o.frequency_penalty + o.presence_penalty;
    }
    if (logit > -kInf) logits[id] = logit;
  }
  const auto keep = [&](const std::set<std::int32_t>& kept) {
    std::erase_if(logits, [&](const auto& entry) { return !kept.contains(entry.first); });
  };
  const auto rarest_last = [](long double p) { return -p; };
  if (o.top_k > 0) {
    const Probabilities p = softmax(logits);
    std::vector<std::pair<long double, std::int32_t>> order;
    for (const auto& [id, logit] : logits) order.emplace_back(-logit, id);
    std::sort(order.begin(), order.end());
    std::set<std::int32_t> kept;
    for (std::size_t i = 0; i < order.size() && static_cast<std::int64_t>(i) < o.top_k; ++i)
      kept.insert(order[i].second);
    keep(kept);
  }
  if (o.typical_p < 1) {
    const Probabilities p = softmax(logits);
    long double entropy = 0;
    for (const auto& [id, value] : p) entropy -= value * std::log(value);
    keep(nucleus(p, o.typical_p, [&](long double value) { return std::abs(entropy + std::log(value)); }));
  }
  if (o.top_p < 1) keep(nucleus(softmax(logits), o.top_p, rarest_last));
  const Probabilities p = softmax(logits);
  long double most = 0;
  for (const auto& [id, value] : p) most = std::max(most, value);
  std::erase_if(logits, [&](const auto& entry) { return p.at(entry.first) < o.min_p * most; });
  return softmax(logits, o.temperature);
}

// Pearson's statistic over cells of at least 8 expected samples (rarer tokens share one), and its limit at a
// probability of 1 - 10^-6 (Wilson and Hilferty's approximation). `impossible`: samples of tokens with probability 0.
struct Fit {
  double statistic = 0, limit = 0;
  int impossible = 0;
};

Fit fit(const std::map<std::int32_t, int>& found, const Probabilities& wanted) {
  Fit result;
  int cells = 0;
  double rare_wanted = 0, rare_found = 0;
  const auto add = [&](double n, double e) {
    result.statistic += (n - e) * (n - e) / e;
    ++cells;
  };
  for (const auto& [id, count] : found) result.impossible += wanted.contains(id) ? 0 : count;
  for (const auto& [id, p] : wanted) {
    const auto at = found.find(id);
    const double n = at == found.end() ? 0 : at->second, e = static_cast<double>(p) * kDraws;
    if (e >= 8) {
      add(n, e);
    } else {
      rare_wanted += e;
      rare_found += n;
    }
  }
  if (rare_wanted >= 8) add(rare_found, rare_wanted);
  const double freedom = std::max(1, cells - 1), part = 2 / (9 * freedom);
  result.limit = freedom * std::pow(1 - part + 4.7534 * std::sqrt(part), 3);
  return result;
}

// 31 logits, uneven and unordered, with ties, both signs, and two of -inf.
std::vector<float> uneven_logits() {
  std::vector<float> logits;
  for (int i = 0; i < 31; ++i) logits.push_back(2.5F - 0.25F * static_cast<float>((i * 7) % 29));
  logits[3] = logits[20] = -kInf;
  logits[11] = logits[12];
  return logits;
}
const Ids kHistory = {0, 5, 5, 0, 17, 9, 9, 9, 2, 99, -1};

std::map<std::int32_t, int> drawn(const qkv::SamplerOptions& options) {
  qkv::Sampler sampler(options);
  const std::vector<float> logits = uneven_logits();
  std::map<std::int32_t, int> found;
  for (int i = 0; i < kDraws; ++i) ++found[sampler.sample(logits, kHistory)];
  return found;
}

qkv::SamplerOptions plain() {
  return {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = 11};
}

void expect_exact(const std::string& name, const qkv::SamplerOptions& options) {
  const Probabilities wanted = expected(options, uneven_logits(), kHistory);
  const Fit result = fit(drawn(options), wanted);
  EXPECT_EQ(result.impossible, 0) << name;
  EXPECT_LT(result.statistic, result.limit) << name << ", " << wanted.size() << " tokens";
}
template <class Change>
void expect_exact(const std::string& name, const Change& change) {
  qkv::SamplerOptions options = plain();
  change(options);
  expect_exact(name, options);
}

TEST(Distribution, EachStepAlone) {
  expect_exact("softmax", plain());
  expect_exact("temperature 0.6", [](auto& o) { o.temperature = 0.6; });
  expect_exact("temperature 1.7", [](auto& o) { o.temperature = 1.7; });
  expect_exact("top_k 7", [](auto& o) { o.top_k = 7; });
  expect_exact("typical_p 0.6", [](auto& o) { o.typical_p = 0.6; });
  expect_exact("top_p 0.8", [](auto& o) { o.top_p = 0.8; });
  expect_exact("min_p 0.1", [](auto& o) { o.min_p = 0.1; });
  expect_exact("repeat_penalty 1.4", [](auto& o) { o.repeat_penalty = 1.4; });
  expect_exact("frequency_penalty 0.7", [](auto& o) { o.frequency_penalty = 0.7; });
  expect_exact("presence_penalty -1.1", [](auto& o) { o.presence_penalty = -1.1; });
  expect_exact("logit_bias", [](auto& o) { o.logit_bias = {{4, 2.5}, {0, -kInf}, {28, 1}, {28, 0.5}, {1000, 3}}; });
}

TEST(Distribution, StepsCombined) {
  expect_exact("penalties of the last 5", [](auto& o) {
    o.repeat_penalty = 1.3;
    o.frequency_penalty = 0.4;
    o.presence_penalty = 0.3;
    o.repeat_last_n = 5;
  });
  expect_exact("penalties of all", [](auto& o) {
    o.repeat_penalty = 0.8;
    o.frequency_penalty = 0.2;
    o.repeat_last_n = -1;
  });
  expect_exact("top_k, typical", [](auto& o) {
    o.top_k = 16;
    o.typical_p = 0.7;
  });
  expect_exact("top_k, top_p, min_p, temperature", [](auto& o) {
    o.top_k = 20;
    o.top_p = 0.9;
    o.min_p = 0.05;
    o.temperature = 0.8;
  });
  expect_exact("all", [](auto& o) {
    o.logit_bias = {{4, 1.5}, {7, -kInf}};
    o.repeat_penalty = 1.2;
    o.frequency_penalty = 0.3;
    o.presence_penalty = 0.2;
    o.top_k = 20;
    o.typical_p = 0.95;
    o.top_p = 0.9;
    o.min_p = 0.02;
    o.temperature = 1.3;
    o.stream = 3;
  });
}

// The test detects small errors.
TEST(Distribution, OtherOptionsAreDetected) {
  qkv::SamplerOptions other = plain();
  other.temperature = 0.97;
  const Probabilities wanted = expected(plain(), uneven_logits(), kHistory);
  const Fit result = fit(drawn(other), wanted);
  EXPECT_GT(result.statistic, result.limit);
  other = plain();
  other.top_p = 0.7;
  EXPECT_GT(fit(drawn(plain()), expected(other, uneven_logits(), kHistory)).impossible, 0);
}

// Streams of one seed are independent: pairs of samples follow the product distribution.
TEST(Distribution, StreamsOfOneSeedAreIndependent) {
  qkv::SamplerOptions options = plain();
  const std::vector<float> logits(6, 0.0F);
  qkv::Sampler first(options);
  options.stream = 1;
  qkv::Sampler second(options);
  std::map<std::int32_t, int> pairs;
  Probabilities wanted;
  for (int i = 0; i < kDraws; ++i) {
    const std::int32_t a = first.sample(logits), b = second.sample(logits);
    ++pairs[6 * a + b];
  }
  for (std::int32_t i = 0; i < 36; ++i) wanted[i] = 1.0L / 36;
  const Fit result = fit(pairs, wanted);
  EXPECT_LT(result.statistic, result.limit);
}

}  // namespace
