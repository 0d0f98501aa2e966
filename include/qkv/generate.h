// SPDX-License-Identifier: Apache-2.0
// Choosing tokens from logits, and letting a model go on from a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <vector>

#include "qkv/model.h"

namespace qkv {

// How a token is drawn, in this order:
//   1. repeat_penalty: the logit of a token of the history is divided by it if positive, multiplied if negative
//      (Keskar et al., "CTRL", 2019);
//   2. top_k: only the k highest logits stay;
//   3. top_p: of those, the fewest most probable ones whose probabilities sum to at least top_p
//      (Holtzman et al., "The curious case of neural text degeneration", 2020);
//   4. min_p: of those, the ones at least min_p times as probable as the most probable;
//   5. temperature: probabilities ~ exp(logit / temperature), and one is drawn.
// Equal logits count as falling with the id, so ties go to the lowest id.
struct SamplerOptions {
  double temperature = 0.8;     // 0: greedy, the highest logit
  std::int64_t top_k = 40;      // 0 or more than there are: all
  double top_p = 0.95;          // 0 ... 1; 1: all, 0: the most probable alone
  double min_p = 0.05;          // 0 ... 1; 0: all
  double repeat_penalty = 1.0;  // > 0; 1: none
  std::uint64_t seed = 0;
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
  // number of tokens; ids outside the vocabulary are ignored. Throws SamplingError, and std::invalid_argument on no
  // logits at all.
  std::int32_t sample(std::span<const float> logits, std::span<const std::int32_t> history = {});

 private:
  struct Candidate {
    double logit;
    std::int32_t id;
  };
  void keep_best(std::size_t count);
  void keep_probable();
  std::int32_t draw(std::uint64_t number);

  SamplerOptions options_;
  std::uint64_t draws_ = 0;
  std::vector<Candidate> candidates_;  // [kept], by falling logit, then rising id
  std::vector<double> weights_;        // [kept]
};

enum class StopReason : std::uint8_t {
  max_tokens,    // as many tokens as were asked for
  end_token,     // the model drew the end token
  context_full,  // prompt and new tokens fill ctx_len
  callback,      // on_token returned false
};

struct GenerateOptions {
  SamplerOptions sampler;
  std::int64_t max_tokens = 256;
  std::int32_t end_token = -1;   // -1: none
  std::int64_t vocab_limit = 0;  // only ids below it are drawn (a padded vocabulary); 0: all
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the new ones, without the end token
  StopReason reason = StopReason::max_tokens;
  double prompt_seconds = 0;    // reading the prompt
  double generate_seconds = 0;  // all after it
};

// Reads the prompt, then draws tokens one by one; each new token costs O(context). on_token (may be empty) sees each
// token as it comes and says whether to go on. Throws std::invalid_argument on an empty prompt, on one longer than
// ctx_len, on a token outside the vocabulary and on bad options, before on_token is called; SamplingError later.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace qkv
