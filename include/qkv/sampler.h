// SPDX-License-Identifier: Apache-2.0
// Sampling a token from logits.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <vector>

namespace qkv {

// Added to a token's logit before anything else: finite, or -inf to ban the token.
struct LogitBias {
  std::int32_t id = 0;
  double value = 0;
  bool operator==(const LogitBias&) const = default;
};

// How a token is sampled, in this order:
//   1. logit_bias is added; several values for one id add up;
//   2. penalties, for a token that occurs n > 0 times among the last repeat_last_n tokens of the history: its logit is
//      divided by repeat_penalty if positive, multiplied by it if not (Keskar et al., "CTRL", 2019), and then
//      n * frequency_penalty + presence_penalty is subtracted;
//   3. top_k: keep the k highest logits;
//   4. typical_p: of those, keep the fewest tokens whose probabilities p sum to at least typical_p, taking those whose
//      -ln p is nearest to the entropy first (Meister et al., "Locally typical sampling", 2022);
//   5. top_p: of those, keep the fewest most probable tokens whose probabilities sum to at least top_p
//      (Holtzman et al., "The curious case of neural text degeneration", 2020);
//   6. min_p: of those, keep the tokens at least min_p times as probable as the most probable;
//   7. temperature: sample with probabilities proportional to exp(logit / temperature).
// Each step uses the softmax over the tokens left by the previous steps. Ties go to the lowest id. Temperature 0 takes
// the highest logit after step 2.
struct SamplerOptions {
  double temperature = 0.8;     // 0: greedy
  std::int64_t top_k = 40;      // 0 or above vocab_size: all
  double top_p = 0.95;          // 0 ... 1; 1: all, 0: only the most probable
  double min_p = 0.05;          // 0 ... 1; 0: all
  double repeat_penalty = 1.0;  // > 0; 1: none
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;         // for several samples with one seed: independent random stream
  double typical_p = 1;             // 0 ... 1; 1: all, 0: only the most typical
  double frequency_penalty = 0;     // finite
  double presence_penalty = 0;      // finite
  std::int64_t repeat_last_n = 64;  // tokens of history used by the penalties; 0: none, -1: all
  std::vector<LogitBias> logit_bias = {};
};

// Logits that cannot be sampled from: one is NaN, or all are -inf.
class SamplingError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Sample number i depends only on the options, the logits, the history and i. Not thread-safe.
class Sampler {
 public:
  explicit Sampler(const SamplerOptions& options);  // throws std::invalid_argument

  // logits [vocab_size]; +inf takes all the probability (several share it evenly), -inf is never sampled. history: any
  // number of tokens, the latest last. Ids outside the vocabulary are ignored in history and logit_bias. Throws
  // SamplingError, and std::invalid_argument for empty logits.
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
  std::vector<std::int32_t> counts_;     // [vocab_size] all 0 between calls
  double highest_ = 0;                   // highest logit of the candidates
  bool sorted_ = false;                  // candidates are sorted by descending logit, then ascending id
  std::vector<Candidate> candidates_;    // [kept]
  std::vector<double> weights_;          // [kept] exp((logit - highest) / temperature)
  std::vector<std::size_t> by_typical_;  // [kept] indices into candidates_
};

}  // namespace qkv
