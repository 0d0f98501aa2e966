// SPDX-License-Identifier: Apache-2.0
#include "generate/sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/finite.h"
#include "model/non_finite.h"

namespace qkv {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("[generate] " + what); }

}  // namespace

void check_text(const ModelConfig& config, std::span<const std::int32_t> text, bool may_be_longer) {
  const auto length = static_cast<std::int64_t>(text.size());
  if (length == 0) refuse("expected a prompt of at least one token; found none");
  if (length > config.ctx_len && !may_be_longer) {
    refuse("expected a prompt of at most ctx_len = " + std::to_string(config.ctx_len) + " tokens; found " +
           std::to_string(length));
  }
  for (const std::int32_t id : text) {
    if (id < 0 || id >= config.vocab_size) {
      refuse("expected prompt tokens below vocab_size = " + std::to_string(config.vocab_size) + "; found " +
             std::to_string(id));
    }
  }
}

void check_request(const ModelConfig& config, std::span<const std::int32_t> prompt, const GenerateOptions& options) {
  check_text(config, prompt, options.shift);
  const Sampler sampler(options.sampler);
  const StopStrings stop(options.stop);
  if (options.max_tokens < 0) {
    refuse("expected max_tokens of at least 0; found " + std::to_string(options.max_tokens));
  }
  if (options.vocab_limit < 0 || options.vocab_limit > config.vocab_size) {
    refuse("expected vocab_limit within 0 ... vocab_size = " + std::to_string(config.vocab_size) + "; found " +
           std::to_string(options.vocab_limit));
  }
  if (!options.shift) return;
  if (config.ctx_len < 2) refuse("expected a context of at least 2 tokens to shift; found 1");
  if (options.keep < -1)
    refuse("expected keep of at least 0, or -1 for the prompt; found " + std::to_string(options.keep));
  const auto length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t keep = options.keep < 0 ? length : options.keep;
  if (keep > config.ctx_len - 2) {
    refuse("expected at most ctx_len - 2 = " + std::to_string(config.ctx_len - 2) + " tokens to keep; found " +
           std::to_string(keep));
  }
}

Sequence::Sequence(std::int64_t id, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::vector<std::int32_t> prompt, GenerateOptions options, Engine::Callback callback)
    : id_(id),
      ctx_len_(config.ctx_len),
      vocab_size_(config.vocab_size),
      keep_(options.keep < 0 ? static_cast<std::int64_t>(prompt.size()) : options.keep),
      limit_(options.vocab_limit ? options.vocab_limit : config.vocab_size),
      options_(std::move(options)),
      tokenizer_(tokenizer),
      callback_(std::move(callback)),
      sampler_(options_.sampler),
      stop_(options_.stop),
      history_(prompt) {
  if (tokenizer_ != nullptr) limit_ = std::min(limit_, tokenizer_->size());
  result_.prompt_tokens = static_cast<std::int64_t>(prompt.size());
  prefix_.tokens = std::move(prompt);
  shift_if_full();
}

void Sequence::admit() {
  if (options_.max_tokens == 0) end(StopReason::max_tokens);
}

void Sequence::start(ModelState state, std::vector<float> logits) {
  logits_ = std::move(logits);
  logits_.resize(static_cast<std::size_t>(vocab_size_));
  prefix_.state = std::move(state);
  result_.queue_seconds = lap();
  result_.prompt_cached = prefix_.state.size();
  result_.prompt_evaluated = static_cast<std::int64_t>(pending().size());
  evaluated(true);
}

std::span<const std::int32_t> Sequence::pending() const noexcept {
  return std::span(prefix_.tokens).subspan(static_cast<std::size_t>(prefix_.state.size()));
}

DecodePart Sequence::part(std::int64_t count) {
  const std::span<const std::int32_t> all = pending(), tokens = all.first(static_cast<std::size_t>(count));
  return {tokens, &prefix_.state, tokens.size() == all.size() ? std::span(logits_) : std::span<float>()};
}

void Sequence::evaluated(bool keeps_logits) {
  if (prompt_evaluated_ || !pending().empty()) return;
  prompt_evaluated_ = true;
  result_.prompt_seconds = lap();
  if (!keeps_logits) return;
  prefix_.logits = logits_;
  prefix_.logits_at = prefix_.state.size();
}

void Sequence::sample() noexcept {
  try {
    const std::span<const float> drawable(logits_.data(), static_cast<std::size_t>(limit_));  // [limit]
    bad_logit_ = first_non_finite(drawable);
    if (bad_logit_ < 0) token_ = sampler_.sample(drawable, history_);
  } catch (...) {
    result_.error = std::current_exception();
  }
}

void Sequence::deliver(const Model& model) {
  if (cancelled_) return;  // by a callback after sample()
  if (bad_logit_ >= 0)
    throw SamplingError("[generate] the logit of token " + std::to_string(bad_logit_) + " is " +
                        (std::isnan(logits_[static_cast<std::size_t>(bad_logit_)]) ? "NaN" : "infinite") + ": " +
                        non_finite_cause(model, &prefix_.state));
  if (result_.error) return end(StopReason::failed);
  const std::vector<std::int32_t>& ends = options_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token_) != ends.end()) return end(StopReason::end_token);
  result_.tokens.push_back(token_);
  history_.push_back(token_);
  prefix_.tokens.push_back(token_);
  std::string text;
  if (tokenizer_ != nullptr) text = characters_.push(stop_.push(tokenizer_->decode(token_)));
  const bool goes_on = call({id_, token_, text, std::span(logits_).first(static_cast<std::size_t>(limit_))});
  if (stop_.found()) return end(StopReason::stop_string);
  if (!goes_on) return end(StopReason::callback);
  if (cancelled_) return;
  if (static_cast<std::int64_t>(result_.tokens.size()) == options_.max_tokens) return end(StopReason::max_tokens);
  if (!options_.shift && static_cast<std::int64_t>(prefix_.tokens.size()) >= ctx_len_)
    return end(StopReason::context_full);
  shift_if_full();
}

// The first `keep` tokens keep their positions and their KV cache; all others are re-evaluated at new positions.
void Sequence::shift_if_full() {
  std::vector<std::int32_t>& tokens = prefix_.tokens;
  if (static_cast<std::int64_t>(tokens.size()) <= ctx_len_) return;
  tokens.erase(tokens.begin() + keep_, tokens.end() - (ctx_len_ - keep_) / 2);
  prefix_.state.truncate(std::min(keep_, prefix_.state.size()));
  prefix_.logits_at = 0;
  prefix_.logits.clear();
  ++result_.shifts;
}

bool Sequence::call(const EngineEvent& event) {
  if (!callback_ || thrown_) return !thrown_;
  try {
    return callback_(event);
  } catch (...) {
    thrown_ = std::current_exception();
    return false;
  }
}

void Sequence::end(StopReason reason) {
  ended_ = true;
  result_.reason = reason;
  if (prompt_evaluated_) result_.generate_seconds = lap();
  result_.context = prefix_.tokens;
  const std::string text = characters_.push(stop_.flush()) + characters_.flush();
  call({id_, -1, text, {}, &result_});
}

void Sequence::fail(std::exception_ptr error) {
  result_.error = std::move(error);
  end(StopReason::failed);
}

double Sequence::lap() {
  const Clock::time_point now = Clock::now();
  return std::chrono::duration<double>(now - std::exchange(begin_, now)).count();
}

}  // namespace qkv
