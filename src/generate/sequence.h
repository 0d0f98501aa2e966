// SPDX-License-Identifier: Apache-2.0
// One request of an engine: the tokens to evaluate next, and sampling from their logits.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "generate/prefix_cache.h"
#include "qkv/engine.h"
#include "qkv/stop_strings.h"
#include "qkv/tokenizer.h"

namespace qkv {

// Throws std::invalid_argument unless a model can evaluate the text, or continue the prompt with these options.
void check_text(const ModelConfig& resolved, std::span<const std::int32_t> text, bool may_be_longer);
void check_request(const ModelConfig& resolved, std::span<const std::int32_t> prompt, const GenerateOptions& options);

class Sequence {
 public:
  // The request must have passed check_request().
  Sequence(std::int64_t id, const ModelConfig& config, const Tokenizer* tokenizer, std::vector<std::int32_t> prompt,
           GenerateOptions options, Engine::Callback callback);

  std::int64_t id() const noexcept { return id_; }
  bool started() const noexcept { return !prefix_.state.layers.empty(); }
  bool prefilling() const noexcept { return started() && !prompt_evaluated_; }
  bool cancelled() const noexcept { return cancelled_; }
  bool ended() const noexcept { return ended_; }
  std::exception_ptr thrown() const noexcept { return thrown_; }  // from the callback
  const Prefix& prefix() const noexcept { return prefix_; }
  Prefix take_prefix() { return std::move(prefix_); }

  // Called when the request gets a slot; it ends at once if there is nothing to generate.
  void admit();
  // The state of the first tokens of prefix(). logits: [vocab_size], after the prompt, or empty.
  void start(ModelState state, std::vector<float> logits);
  std::span<const std::int32_t> pending() const noexcept;
  DecodePart part(std::int64_t count);  // the first `count` of unread()
  void evaluated(bool keeps_logits);    // call after part() was evaluated
  bool ready() const noexcept { return started() && !ended_ && !cancelled_ && pending().empty(); }
  void sample() noexcept;            // thread-safe across requests
  void deliver(const Model& model);  // calls back with the sampled token; then there are tokens to evaluate, or the
                                     // request has ended

  void cancel() noexcept { cancelled_ = true; }
  void end(StopReason reason);
  void fail(std::exception_ptr error);

 private:
  using Clock = std::chrono::steady_clock;
  bool call(const EngineEvent& event);
  void shift_if_full();
  double lap();

  std::int64_t id_, ctx_len_, vocab_size_, keep_, limit_;
  GenerateOptions options_;
  const Tokenizer* tokenizer_;
  Engine::Callback callback_;
  Sampler sampler_;
  StopStrings stop_;
  Utf8Stream characters_;
  Prefix prefix_;                      // contents of the context
  std::vector<float> logits_;          // [vocab_size]
  std::vector<std::int32_t> history_;  // the prompt and all tokens since
  GenerateResult result_;
  std::int32_t token_ = -1;
  std::int64_t bad_logit_ = -1;  // the first one that is not finite
  bool prompt_evaluated_ = false, cancelled_ = false, ended_ = false;
  std::exception_ptr thrown_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace qkv
