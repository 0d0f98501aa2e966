// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <string>

#include "core/random.h"
#include "qkv/generate.h"

namespace qkv {
namespace {

void require(bool condition, const char* expected, double found) {
  if (!condition) {
    throw std::invalid_argument(std::string("[sampler] ") + expected + "; found " + std::to_string(found));
  }
}

double penalised(double logit, double penalty) { return logit > 0 ? logit / penalty : logit * penalty; }

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  require(options.temperature >= 0 && std::isfinite(options.temperature),
          "temperature must be a finite number of at least 0", options.temperature);
  require(options.top_k >= 0, "top_k must be at least 0", static_cast<double>(options.top_k));
  require(options.top_p >= 0 && options.top_p <= 1, "top_p must be within 0 ... 1", options.top_p);
  require(options.min_p >= 0 && options.min_p <= 1, "min_p must be within 0 ... 1", options.min_p);
  require(options.repeat_penalty > 0 && std::isfinite(options.repeat_penalty),
          "repeat_penalty must be a finite number above 0", options.repeat_penalty);
}

std::int32_t Sampler::sample(std::span<const float> logits, std::span<const std::int32_t> history) {
  if (logits.empty()) throw std::invalid_argument("[sampler] expected at least one logit; found none");
  candidates_.resize(logits.size());
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i])) throw SamplingError("[sampler] the logit of token " + std::to_string(i) + " is NaN");
    candidates_[i] = {logits[i], static_cast<std::int32_t>(i)};
  }
  if (options_.repeat_penalty != 1) {
    // Computed from the logit as given, so that a token that occurs twice is penalised once.
    for (const std::int32_t id : history) {
      if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
      const auto i = static_cast<std::size_t>(id);
      candidates_[i].logit = penalised(logits[i], options_.repeat_penalty);
    }
  }
  const bool all = options_.top_k == 0 || static_cast<std::uint64_t>(options_.top_k) >= candidates_.size();
  keep_best(options_.temperature == 0 ? 1 : all ? candidates_.size() : static_cast<std::size_t>(options_.top_k));
  if (std::isinf(candidates_.front().logit) && candidates_.front().logit < 0) {
    throw SamplingError("[sampler] every logit is -inf");
  }
  const std::uint64_t number = draws_;
  ++draws_;
  if (options_.temperature == 0) return candidates_.front().id;
  keep_probable();
  return draw(number);
}

// The `count` best candidates, sorted.
void Sampler::keep_best(std::size_t count) {
  const auto better = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  std::partial_sort(candidates_.begin(), candidates_.begin() + static_cast<std::ptrdiff_t>(count), candidates_.end(),
                    better);
  candidates_.resize(count);
}

// top_p and min_p over exp(logit - highest); the candidates are sorted, so both keep a beginning of the list.
void Sampler::keep_probable() {
  const double highest = candidates_.front().logit;
  weights_.resize(candidates_.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    // inf - inf is NaN: logits equal to the highest weigh 1 whatever they are.
    weights_[i] = candidates_[i].logit == highest ? 1.0 : std::exp(candidates_[i].logit - highest);
    total += weights_[i];
  }
  std::size_t kept = 0;
  double sum = 0;
  const double wanted = options_.top_p * total;
  while (kept < weights_.size() && weights_[kept] > 0 && weights_[kept] >= options_.min_p &&
         (kept == 0 || options_.top_p == 1 || sum < wanted)) {
    sum += weights_[kept];
    ++kept;
  }
  candidates_.resize(kept);
}

std::int32_t Sampler::draw(std::uint64_t number) {
  const double highest = candidates_.front().logit;
  weights_.resize(candidates_.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const double logit = candidates_[i].logit;
    weights_[i] = logit == highest ? 1.0 : std::exp((logit - highest) / options_.temperature);
    total += weights_[i];
  }
  double left = Random(options_.seed).uniform(number) * total;
  std::size_t chosen = 0;
  for (std::size_t i = 0; i < candidates_.size() && weights_[i] > 0; ++i) {
    chosen = i;
    if (left < weights_[i]) break;
    left -= weights_[i];
  }
  return candidates_[chosen].id;
}

}  // namespace qkv
