// SPDX-License-Identifier: Apache-2.0
#include "qkv/generate.h"

#include <algorithm>
#include <chrono>
#include <string>

namespace qkv {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void check(const ModelConfig& config, std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument("[generate] " + what); };
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length == 0) refuse("expected a prompt of at least one token; found none");
  if (length > config.ctx_len) {
    refuse("expected a prompt of at most ctx_len = " + std::to_string(config.ctx_len) + " tokens; found " +
           std::to_string(length));
  }
  for (const std::int32_t id : prompt) {
    if (id < 0 || id >= config.vocab_size) {
      refuse("expected prompt tokens below vocab_size = " + std::to_string(config.vocab_size) + "; found " +
             std::to_string(id));
    }
  }
  if (options.max_tokens < 0) {
    refuse("expected max_tokens of at least 0; found " + std::to_string(options.max_tokens));
  }
  if (options.vocab_limit < 0 || options.vocab_limit > config.vocab_size) {
    refuse("expected vocab_limit within 0 ... vocab_size = " + std::to_string(config.vocab_size) + "; found " +
           std::to_string(options.vocab_limit));
  }
}

}  // namespace

GenerateResult generate(Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<bool(std::int32_t)>& on_token) {
  const ModelConfig config = model.config().resolved();
  check(config, prompt, options);
  Sampler sampler(options.sampler);
  GenerateResult result;
  const std::int64_t room = config.ctx_len - static_cast<std::int64_t>(prompt.size());
  if (options.max_tokens == 0 || room == 0) {
    result.reason = options.max_tokens == 0 ? StopReason::max_tokens : StopReason::context_full;
    return result;
  }

  std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));  // [vocab_size]
  const std::int64_t limit = options.vocab_limit ? options.vocab_limit : config.vocab_size;
  const std::span<const float> drawable(logits.data(), static_cast<std::size_t>(limit));  // [limit]
  ModelState state = model.make_state();
  Clock::time_point begin = Clock::now();
  model.read(prompt, state, logits);
  result.prompt_seconds = seconds_since(begin);

  begin = Clock::now();
  std::vector<std::int32_t> history(prompt.begin(), prompt.end());  // [prompt + new]
  while (true) {
    const std::int32_t token = sampler.sample(drawable, history);
    if (std::find(options.end_tokens.begin(), options.end_tokens.end(), token) != options.end_tokens.end()) {
      result.reason = StopReason::end_token;
      break;
    }
    result.tokens.push_back(token);
    history.push_back(token);
    if (on_token && !on_token(token)) {
      result.reason = StopReason::callback;
      break;
    }
    const auto count = static_cast<std::int64_t>(result.tokens.size());
    if (count == options.max_tokens || count == room) {
      result.reason = count == options.max_tokens ? StopReason::max_tokens : StopReason::context_full;
      break;
    }
    model.read({&token, 1}, state, logits);
  }
  result.generate_seconds = seconds_since(begin);
  return result;
}

}  // namespace qkv
