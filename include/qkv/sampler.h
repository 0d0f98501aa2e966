// SPDX-License-Identifier: Apache-2.0
// Choosing a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace qkv {

// Added to one token's logit before all else: finite, or -inf for a token that must never come.
struct LogitBias {
  std::int32_t id = 0;
  double value = 0;
  bool operator==(const LogitBias&) const = default;
};

// How a token is drawn, in this order:
//   1. logit_bias is added; the values of one id given several times add up;
//   2. penalties, for a token that occurs n > 0 times among the last repeat_last_n tokens of the history: its logit is
//      divided by repeat_penalty if positive, multiplied by it if not (Keskar et al., "CTRL", 2019), and then
//      n * frequency_penalty + presence_penalty is taken off;
//   3. top_k: only the k highest logits stay;
//   4. typical_p: of those, the fewest tokens whose probabilities p sum to at least typical_p, those first whose -ln p
//      is nearest to the entropy (Meister et al., "Locally typical sampling", 2022);
//   5. top_p: of those, the fewest most probable ones whose probabilities sum to at least top_p
//      (Holtzman et al., "The curious case of neural text degeneration", 2020);
//   6. min_p: of those, the ones at least min_p times as probable as the most probable;
//   7. temperature: probabilities ~ exp(logit / temperature), and one is drawn.
// Each step sees the softmax over what the steps before it left. Equal logits count as falling with the id, so ties go
// to the lowest id. Temperature 0 takes the highest logit after step 2.
struct SamplerOptions {
  double temperature = 0.8;     // 0: greedy
  std::int64_t top_k = 40;      // 0 or more than there are: all
  double top_p = 0.95;          // 0 ... 1; 1: all, 0: the most probable alone
  double min_p = 0.05;          // 0 ... 1; 0: all
  double repeat_penalty = 1.0;  // > 0; 1: none
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;         // several samples of one seed: each draws from a stream of its own
  double typical_p = 1;             // 0 ... 1; 1: all, 0: the most typical alone
  double frequency_penalty = 0;     // finite
  double presence_penalty = 0;      // finite
  std::int64_t repeat_last_n = 64;  // how much of the history the penalties see; 0: nothing, -1: all
  std::vector<LogitBias> logit_bias = {};
};

// Logits from which nothing can be drawn: one is NaN, or all are -inf.
class SamplingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Draw number i depends on the options, the logits, the history and i alone. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // throws std::invalid_argument

  // logits [vocab_size]; +inf takes all the probability (shared evenly by several), -inf is never drawn. history: any
  // number of tokens, the latest last; ids outside the vocabulary are ignored, in it and in logit_bias. Throws
  // SamplingError, and std::invalid_argument on no logits at all.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history = {});

 private:
  struct Candidate {
    double logit;
    std::int32_t id;
  };
  static bool better(const Candidate& a, const Candidate& b) noexcept;
  void adjust(std::span<const float> logits, std::span<const std::int32_t> history);
  void penalise(std::span<const std::int32_t> history);
  void apply_top_k();
  void weigh(double temperature);
  void apply_typical();
  void apply_top_p();
  std::int32_t draw(std::uint64_t number);

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<double> logits_;           // [vocab_size] with bias and penalties
  std::vector<std::int32_t> counts_;     // [vocab_size] zeros between two draws
  double highest_ = 0;                   // of the candidates' logits
  bool sorted_ = false;                  // the candidates are, by falling logit, then rising id
  std::vector<Candidate> candidates_;    // [kept]
  std::vector<double> weights_;          // [kept] exp((logit - highest) / temperature)
  std::vector<std::size_t> by_typical_;  // [kept] places in candidates_
};

}  // namespace qkv
