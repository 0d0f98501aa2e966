// SPDX-License-Identifier: Apache-2.0
// Text generation from one prompt: options and result. For many prompts at once: qkv/engine.h.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "qkv/model.h"
#include "qkv/sampler.h"

namespace qkv {

enum class StopReason : std::uint8_t {
  max_tokens,    // GenerateOptions::max_tokens were generated
  end_token,     // an end token was sampled
  context_full,  // prompt and new tokens fill ctx_len; after a prompt that fills it alone there is one new token
  callback,      // the callback returned false
  stop_string,   // the text contains one of `stop`
  cancelled,     // Engine::cancel
  failed,        // see GenerateResult::error
};
std::string_view stop_reason_name(StopReason reason) noexcept;  // "max_tokens"

struct GenerateOptions {
  SamplerOptions sampler;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> end_tokens = {};  // each ends generation
  std::vector<std::string> stop = {};         // stop strings (qkv/stop_strings.h); need an engine with a tokenizer
  std::int64_t vocab_limit = 0;               // only ids below it are sampled (padded vocabulary); 0: all
  // Context shift: when ctx_len tokens are in the cache and another must be evaluated, the first `keep` tokens and the
  // latest (ctx_len - keep) / 2 stay, the latter are re-evaluated at their new positions, and generation continues.
  // Results are exactly those for these tokens as a prompt, with any position encoding. A prompt longer than the
  // context is shortened the same way.
  bool shift = false;
  std::int64_t keep = 4;  // 0 ... ctx_len - 2; -1: the whole prompt
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // new tokens, without the end token
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_tokens = 0;     // in the prompt
  std::int64_t prompt_cached = 0;     // of these, found in a prefix or prompt cache
  std::int64_t prompt_evaluated = 0;  // prompt tokens evaluated
  std::int64_t shifts = 0;            // number of context shifts
  double queue_seconds = 0;           // waiting in the queue
  double prompt_seconds = 0;          // evaluating the prompt
  double generate_seconds = 0;        // decode, after the prompt
  std::vector<std::int32_t> context;  // prompt and new tokens; after a shift, the remaining ones
  std::exception_ptr error;           // failed: SamplingError, std::bad_alloc
};

// Evaluates the prompt, then samples tokens one by one; each new token costs O(context). on_token (may be empty) is
// called for each token; returning false stops. Throws std::invalid_argument, before on_token is called, for an empty
// prompt, a prompt longer than ctx_len (unless shift is set), a token outside the vocabulary or bad options; later,
// SamplingError and exceptions of on_token.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace qkv
