// SPDX-License-Identifier: Apache-2.0
// Letting a model go on from a prompt.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "qkv/model.h"
#include "qkv/sampler.h"

namespace qkv {

enum class StopReason : std::uint8_t {
  max_tokens,    // as many tokens as were asked for
  end_token,     // the model drew an end token
  context_full,  // prompt and new tokens fill ctx_len
  callback,      // on_token returned false
};

struct GenerateOptions {
  SamplerOptions sampler;
  std::int64_t max_tokens = 256;
  std::vector<std::int32_t> end_tokens = {};  // each ends the text
  std::int64_t vocab_limit = 0;               // only ids below it are drawn (a padded vocabulary); 0: all
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
