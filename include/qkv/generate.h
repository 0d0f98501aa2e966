// SPDX-License-Identifier: Apache-2.0
// Generating from one prompt: what may be asked for, and what comes of it. qkv/engine.h does it for many.
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
  max_tokens,    // as many tokens as were asked for
  end_token,     // the model drew an end token
  context_full,  // prompt and new tokens fill ctx_len
  callback,      // the callback returned false
  stop_string,   // the text contains one of `stop`
  cancelled,     // Engine::cancel
  failed,        // GenerateResult::error says why
};
std::string_view stop_reason_name(StopReason reason) noexcept;  // "max_tokens"

struct GenerateOptions {
  SamplerOptions sampler;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> end_tokens = {};  // each ends the text
  std::vector<std::string> stop = {};  // strings that end it (qkv/stop_strings.h); an engine with a tokenizer only
  std::int64_t vocab_limit = 0;        // only ids below it are drawn (a padded vocabulary); 0: all
  // Past the end of the context: once ctx_len tokens are read and one more is to be, the first `keep` tokens of the
  // text and the latest (ctx_len - keep) / 2 stay, the latest are read again at the positions that they have now, and
  // the text goes on. What follows is exactly what the model says to those tokens alone, whichever kind of positions it
  // has. A prompt longer than the context is cut in the same way.
  bool shift = false;
  std::int64_t keep = 4;  // 0 ... ctx_len - 2; -1: the whole prompt
};

struct GenerateResult {
  std::vector<std::int32_t> tokens;  // the new ones, without the end token
  StopReason reason = StopReason::max_tokens;
  std::int64_t prompt_tokens = 0;     // of the prompt
  std::int64_t prompt_cached = 0;     // of them, those whose keys and values another request or a file had
  std::int64_t prompt_evaluated = 0;  // and those that were evaluated
  std::int64_t shifts = 0;            // how often the text was cut to go on
  double queue_seconds = 0;           // before its evaluation
  double prompt_seconds = 0;          // evaluating the prompt
  double generate_seconds = 0;        // all after it
  std::vector<std::int32_t> context;  // prompt and new tokens; after a shift, what is left of them
  std::exception_ptr error;           // failed: SamplingError, std::bad_alloc
};

// Evaluates the prompt, then draws tokens one by one; each new token costs O(context). on_token (may be empty) sees
// each token as it comes and says whether to go on. Throws std::invalid_argument on an empty prompt, on one longer than
// ctx_len (unless it is to shift), on a token outside the vocabulary and on bad options, before on_token is called;
// SamplingError and what on_token throws later.
GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token = {});

}  // namespace qkv
