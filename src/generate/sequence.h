// SPDX-License-Identifier: Apache-2.0
// One text while it is being written: what is to be read next, and what is drawn from what was read.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "qkv/generate.h"

namespace qkv {

// Throws std::invalid_argument unless a model can go on from the prompt with these options.
void check_request(const ModelConfig& resolved, std::span<const std::int32_t> prompt, const GenerateOptions& options);
void check_text(const ModelConfig& resolved, std::span<const std::int32_t> text, bool may_be_longer);

// What of `context` can stay for `text`: its state is cut back to the beginning that both have, without the text's last
// token, whose logits are wanted; its tokens become the text. Makes a state if there is none.
void take_over(const Model& model, std::span<const std::int32_t> text, std::optional<CacheType> type,
               TextContext& context);

class Sequence {
 public:
  // The request must have passed check_request.
  Sequence(const Model& model, std::span<const std::int32_t> prompt, const GenerateOptions& options,
           std::uint64_t stream, TextContext context);
  // A copy is another text with the same prompt. From here on it draws from this stream, and the time counts from now;
  // unless it is the one that read the prompt, it has read nothing.
  void use_stream(std::uint64_t stream, bool reader);

  bool ended() const noexcept { return ended_; }
  // To be read next: model.read(unread(), state(), logits()), and then has_read().
  std::span<const std::int32_t> unread() const noexcept;
  ModelState& state() noexcept { return context_.state; }
  std::span<float> logits() noexcept { return logits_; }  // [vocab_size]
  void has_read();
  // Draws a token and shows it; afterwards there is something to read, or the text has ended.
  void draw(const std::function<bool(std::int32_t)>& on_token);

  GenerateResult take_result();
  TextContext take_context() { return std::move(context_); }

 private:
  using Clock = std::chrono::steady_clock;
  void end(StopReason reason);
  void make_room();

  const GenerateOptions& options_;
  std::int64_t ctx_len_, keep_, limit_;
  Sampler sampler_;
  TextContext context_;
  std::vector<float> logits_;          // [vocab_size]
  std::vector<std::int32_t> history_;  // the prompt and all that came after it
  GenerateResult result_;
  bool ended_ = false, prompt_read_ = false;
  Clock::time_point begin_;
};

}  // namespace qkv
