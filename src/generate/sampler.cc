// SPDX-License-Identifier: Apache-2.0
#include "qkv/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/number_text.h"
#include "core/random.h"

namespace qkv {
namespace {

void require(bool condition, const char* expected, double found) {
  if (!condition) {
    throw std::invalid_argument(std::string("[sampler] ") + expected + "; found " + number_text(found));
  }
}

double repeated(double logit, double penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

// exp(logit - highest), but 1 for logits equal to the highest, where inf - inf would be NaN.
double weight(double logit, double highest, double temperature) {
  return logit == highest ? 1.0 : std::exp((logit - highest) / temperature);
}

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "temperature must be a finite number of at least 0", options.temperature);
  require(options.top_k >= 0, "top_k must be at least 0", static_cast<double>(options.top_k));
  require(options.top_p >= 0 && options.top_p <= 1, "top_p must be within 0 ... 1", options.top_p);
  require(options.min_p >= 0 && options.min_p <= 1, "min_p must be within 0 ... 1", options.min_p);
  require(options.typical_p >= 0 && options.typical_p <= 1, "typical_p must be within 0 ... 1", options.typical_p);
  require(options.repeat_penalty > 0 && std::isfinite(options.repeat_penalty),
          "repeat_penalty must be a finite number above 0", options.repeat_penalty);
  require(std::isfinite(options.frequency_penalty), "frequency_penalty must be finite", options.frequency_penalty);
  require(std::isfinite(options.presence_penalty), "presence_penalty must be finite", options.presence_penalty);
  require(options.repeat_last_n >= -1, "repeat_last_n must be at least 0, or -1",
          static_cast<double>(options.repeat_last_n));
  for (const LogitBias& bias : options.logit_bias) {
    require(bias.id >= 0, "logit_bias expected a token id of at least 0", bias.id);
    require(std::isfinite(bias.value) || bias.value < 0, "logit_bias must be finite or -inf", bias.value);
  }
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  if (logits.empty()) throw std::invalid_argument("[sampler] expected at least one logit; found none");
  adjust(logits, history);
  apply_top_k();
  if (highest_ == -std::numeric_limits<double>::infinity()) {
    throw SamplingError("[sampler] every logit is -inf");
  }
  const std::uint64_t number = draws_++;
  if (options_.temperature == 0) return candidates_.front().id;
  if (options_.typical_p < 1) apply_typical();
  if (options_.top_p < 1 || options_.min_p > 0) apply_top_p();
  return draw(number);
}

void Sampler::adjust(std::span<const float> logits, std::span<const std::int32_t> history) {
  logits_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) throw SamplingError("[sampler] the logit of token " + std::to_string(i) + " is NaN");
    logits_[i] = logits[i];
  }
  for (const LogitBias& bias : options_.logit_bias) {
    if (static_cast<std::size_t>(bias.id) >= logits.size()) continue;
    double& logit = logits_[static_cast<std::size_t>(bias.id)];
    logit = std::isinf(bias.value) ? bias.value
                                   : logit + bias.value;  // -inf also bans a logit of +inf, where the sum would be NaN
  }
  if (options_.repeat_penalty != 1 || options_.frequency_penalty != 0 || options_.presence_penalty != 0) {
    const std::size_t seen = options_.repeat_last_n < 0
                                 ? history.size()
                                 : std::min(history.size(), static_cast<std::size_t>(options_.repeat_last_n));
    penalise(history.last(seen));
  }
}

void Sampler::penalise(std::span<const std::int32_t> history) {
  counts_.resize(logits_.size());
  const auto is_token = [&](std::int32_t id) { return id >= 0 && static_cast<std::size_t>(id) < logits_.size(); };
  for (const std::int32_t id : history) {
    if (is_token(id)) ++counts_[static_cast<std::size_t>(id)];
  }
  for (const std::int32_t id : history) {
    if (!is_token(id)) continue;
    const auto i = static_cast<std::size_t>(id);
    if (counts_[i] == 0) continue;  // already counted
    logits_[i] = repeated(logits_[i], options_.repeat_penalty) - counts_[i] * options_.frequency_penalty -
                 options_.presence_penalty;
    counts_[i] = 0;
  }
}

bool Sampler::better(const Candidate& a, const Candidate& b) noexcept {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The top_k best, sorted, in one pass with a heap whose top is the worst candidate. Without a limit, candidates stay in
// id order: sorting a large vocabulary takes longer than most models need per token.
void Sampler::apply_top_k() {
  const std::size_t all = logits_.size();
  const bool limited = options_.top_k > 0 && static_cast<std::uint64_t>(options_.top_k) < all;
  const std::size_t count = options_.temperature == 0 ? 1 : limited ? static_cast<std::size_t>(options_.top_k) : all;
  highest_ = *std::max_element(logits_.begin(), logits_.end());
  candidates_.clear();
  for (std::size_t i = 0; i < all; ++i) {
    const Candidate candidate{logits_[i], static_cast<std::int32_t>(i)};
    if (candidates_.size() < count) {
      candidates_.push_back(candidate);
      if (candidates_.size() == count && count < all) std::make_heap(candidates_.begin(), candidates_.end(), better);
    } else if (candidate.logit > candidates_.front().logit) {  // on ties the lower id wins
      std::pop_heap(candidates_.begin(), candidates_.end(), better);
      candidates_.back() = candidate;
      std::push_heap(candidates_.begin(), candidates_.end(), better);
    }
  }
  sorted_ = count < all || all == 1;
  if (sorted_) std::sort(candidates_.begin(), candidates_.end(), better);
}

void Sampler::weigh(double temperature) {
  weights_.resize(candidates_.size());
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    weights_[i] = weight(candidates_[i].logit, highest_, temperature);
  }
}

void Sampler::apply_typical() {
  if (!sorted_) std::sort(candidates_.begin(), candidates_.end(), better);
  sorted_ = true;
  weigh(1);
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double entropy = 0;
  for (const double w : weights_) entropy -= w > 0 ? w / total * std::log(w / total) : 0;
  const auto surprise = [&](std::size_t i) { return std::abs(-std::log(weights_[i] / total) - entropy); };
  by_typical_.clear();
  for (std::size_t i = 0; i < weights_.size() && weights_[i] > 0; ++i) by_typical_.push_back(i);
  std::stable_sort(by_typical_.begin(), by_typical_.end(),
                   [&](std::size_t a, std::size_t b) { return surprise(a) < surprise(b); });
  double sum = 0;
  std::size_t kept = 0;
  while (kept < by_typical_.size() && (kept == 0 || sum < options_.typical_p * total))
    sum += weights_[by_typical_[kept++]];
  by_typical_.resize(kept);
  std::sort(by_typical_.begin(), by_typical_.end());
  for (std::size_t i = 0; i < kept; ++i) candidates_[i] = candidates_[by_typical_[i]];
  candidates_.resize(kept);
  highest_ = candidates_.front().logit;
}

// top_p and min_p keep the most probable tokens, so min_p can be applied before sorting.
void Sampler::apply_top_p() {
  weigh(1);
  const double wanted = options_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  std::size_t probable = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] > 0 && weights_[i] >= options_.min_p) candidates_[probable++] = candidates_[i];
  }
  candidates_.resize(probable);
  if (options_.top_p == 1) return;
  const auto begin = candidates_.begin();
  double sum = 0;
  std::size_t kept = 0;
  for (std::size_t in_order = sorted_ ? probable : 0, step = 64; kept < probable; ++kept) {
    if (kept == in_order) {
      in_order = std::min(probable, in_order + step);
      step *= 8;
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(kept), begin + static_cast<std::ptrdiff_t>(in_order),
                        candidates_.end(), better);
    }
    if (kept > 0 && sum >= wanted) break;
    sum += weight(candidates_[kept].logit, highest_, 1);
  }
  candidates_.resize(kept);
}

std::int32_t Sampler::draw(std::uint64_t number) {
  weigh(options_.temperature);
  const double total = std::accumulate(weights_.begin(), weights_.end(), 0.0);
  double left = Random(options_.seed, options_.stream).uniform(number) * total;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (weights_[i] == 0) continue;
    chosen = i;
    if (left < weights_[i]) break;
    left -= weights_[i];
  }
  return candidates_[chosen].id;
}

}  // namespace qkv
