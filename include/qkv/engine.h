// SPDX-License-Identifier: Apache-2.0
// Generation for many requests at once, which come, end and are cancelled at any time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "qkv/generate.h"
#include "qkv/prompt_cache.h"

namespace qkv {

class Tokenizer;  // qkv/tokenizer.h

struct EngineOptions {
  std::int64_t slots = 16;    // requests evaluated together, each with its own KV cache
  std::int64_t queue = 1024;  // requests that may wait for a slot
  std::int64_t chunk = 512;   // prompt tokens evaluated per step, those of all requests together
  // Memory for the KV caches of requests that have ended, the most recently used ones. A prompt starts from the longest
  // beginning that it shares with one of them or with a running request. 0: none is kept, and nothing is shared.
  std::size_t prefix_bytes = 0;
  std::optional<CacheType> cache_type = std::nullopt;  // of keys and values; nothing: the type of the operands
};

// The queue is full: the request was not accepted and may be submitted again later.
class QueueFullError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A new token of a request, or its end, which is the last event of each accepted request. Valid during the call.
struct EngineEvent {
  std::int64_t id = 0;
  std::int32_t token = -1;  // -1 at the end
  // What can be shown now: whole UTF-8 characters, and nothing of a stop string. Empty without a tokenizer.
  std::string_view text = {};
  std::span<const float> logits = {};      // [vocab_limit], from which the token was drawn; empty at the end
  const GenerateResult* result = nullptr;  // the end
};

// Continuous batching: each step evaluates one token of every running request and a chunk of the prompts of new ones,
// half of it for the oldest prompt and the rest for those with the least left, so that a long prompt holds up neither
// the running requests nor a short prompt behind it. Requests get slots in the order in which they came. A request has
// the same tokens alone and beside others, with any options of the engine but cache_type.
//
// Not thread-safe, and without a thread of its own: all calls, callbacks included, are made by whoever calls step().
// A callback may submit and cancel. Model and tokenizer must outlive the engine; parameters may not change meanwhile.
class Engine {
 public:
  using Callback = std::function<bool(const EngineEvent&)>;

  // Throws std::invalid_argument on slots, queue or chunk below 1.
  explicit Engine(Model& model, const EngineOptions& options = {}, const Tokenizer* tokenizer = nullptr);
  ~Engine();  // requests that have not ended get no event
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Returns the id of a request that waits for the next step. Its callback (may be empty) gets an event for each token,
  // where returning false ends the request, and one at the end. Throws std::invalid_argument as generate() does, and
  // QueueFullError.
  std::int64_t submit(std::vector<std::int32_t> prompt, GenerateOptions options, Callback callback);
  // Only checks what submit() would throw std::invalid_argument for.
  void check(std::span<const std::int32_t> prompt, const GenerateOptions& options) const;
  // No token follows, and the next step, before it evaluates anything, ends the request. False: there is none of the
  // id.
  bool cancel(std::int64_t id);
  void cancel_all();

  // Evaluates up to `slots` tokens and a chunk, and calls back. False when no request is left. An exception of a
  // callback ends its request and leaves step() once all others have had their events; those go on with the next step.
  bool step();

  // What has been evaluated of a text joins the caches of ended requests. Its state must be of the engine's model and
  // cache type (std::invalid_argument).
  void add_prefix(TextContext context);

  std::int64_t running() const noexcept;      // requests with a slot
  std::int64_t waiting() const noexcept;      // requests in the queue
  std::size_t prefix_bytes() const noexcept;  // memory of the caches of ended requests

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Memory that one request takes at most: keys and values of ctx_len tokens, and logits.
std::size_t request_bytes(const Model& model, std::optional<CacheType> type = std::nullopt);

}  // namespace qkv
