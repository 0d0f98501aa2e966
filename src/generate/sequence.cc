// SPDX-License-Identifier: Apache-2.0
#include "generate/sequence.h"

#include <algorithm>
#include <string>
#include <utility>

namespace qkv {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("[generate] " + what); }

SamplerOptions with_stream(SamplerOptions options, std::uint64_t stream) {
  options.stream = stream;
  return options;
}

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

void take_over(const Model& model, std::span<const std::int32_t> text, std::optional<CacheType> type,
               TextContext& context) {
  if (context.state.layers.empty()) context.state = type ? model.make_state(*type) : model.make_state();
  const std::size_t most =
      std::min({text.size() - 1, context.tokens.size(), static_cast<std::size_t>(context.state.size())});
  const auto differ =
      std::mismatch(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(most), context.tokens.begin());
  context.state.truncate(differ.first - text.begin());
  context.tokens.assign(text.begin(), text.end());
}

Sequence::Sequence(const Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
                   std::uint64_t stream, TextContext context)
    : options_(options),
      ctx_len_(model.config().ctx_len),
      keep_(options.keep < 0 ? static_cast<std::int64_t>(prompt.size()) : options.keep),
      limit_(options.vocab_limit ? options.vocab_limit : model.config().vocab_size),
      sampler_(with_stream(options.sampler, stream)),
      context_(std::move(context)),
      history_(prompt.begin(), prompt.end()) {
  logits_.resize(static_cast<std::size_t>(model.config().vocab_size));
  take_over(model, prompt, options.cache_type, context_);
  make_room();
  if (options_.max_tokens == 0) {
    end(StopReason::max_tokens);
  } else if (static_cast<std::int64_t>(prompt.size()) == ctx_len_ && !options_.shift) {
    end(StopReason::context_full);
  } else {
    result_.prompt_read = static_cast<std::int64_t>(unread().size());
  }
  begin_ = Clock::now();
}

void Sequence::use_stream(std::uint64_t stream, bool reader) {
  sampler_ = Sampler(with_stream(options_.sampler, stream));
  begin_ = Clock::now();
  if (reader) return;
  result_.prompt_read = 0;
  result_.prompt_seconds = 0;
}

std::span<const std::int32_t> Sequence::unread() const noexcept {
  return std::span(context_.tokens).subspan(static_cast<std::size_t>(context_.state.size()));
}

void Sequence::has_read() {
  if (prompt_read_) return;
  prompt_read_ = true;
  const Clock::time_point now = Clock::now();
  result_.prompt_seconds = std::chrono::duration<double>(now - begin_).count();
  begin_ = now;
}

void Sequence::draw(const std::function<bool(std::int32_t)>& on_token) {
  const std::span<const float> drawable(logits_.data(), static_cast<std::size_t>(limit_));  // [limit]
  const std::int32_t token = sampler_.sample(drawable, history_);
  const std::vector<std::int32_t>& ends = options_.end_tokens;
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return end(StopReason::end_token);
  result_.tokens.push_back(token);
  history_.push_back(token);
  context_.tokens.push_back(token);
  if (on_token && !on_token(token)) return end(StopReason::callback);
  if (static_cast<std::int64_t>(result_.tokens.size()) == options_.max_tokens) return end(StopReason::max_tokens);
  if (!options_.shift && static_cast<std::int64_t>(context_.tokens.size()) == ctx_len_) {
    return end(StopReason::context_full);
  }
  make_room();
}

// The first tokens stay where they are, so their keys and values stay too; all others are read at new positions.
void Sequence::make_room() {
  std::vector<std::int32_t>& tokens = context_.tokens;
  if (static_cast<std::int64_t>(tokens.size()) <= ctx_len_) return;
  tokens.erase(tokens.begin() + keep_, tokens.end() - (ctx_len_ - keep_) / 2);
  context_.state.truncate(std::min(keep_, context_.state.size()));
  ++result_.shifts;
}

void Sequence::end(StopReason reason) {
  ended_ = true;
  result_.reason = reason;
  if (prompt_read_) result_.generate_seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
}

GenerateResult Sequence::take_result() { return std::move(result_); }

}  // namespace qkv
