// SPDX-License-Identifier: Apache-2.0
// Generation for many concurrent requests, which may be added, finish and be cancelled at any time.
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
  std::int64_t queue = 1024;  // requests that can wait for a slot
  std::int64_t chunk = 512;   // prompt tokens evaluated per step, over all requests
  // Memory for the prefix cache: KV caches of finished requests, evicting the least recently used. A prompt reuses the
  // longest prefix that it shares with one of them or with a running request. 0: no prefix cache, no sharing.
  std::size_t prefix_bytes = 0;
  std::optional<DType> cache_type = std::nullopt;  // KV cache data type; nullopt: the compute dtype
};

// The queue is full: the request was rejected and may be submitted again later.
class QueueFullError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A new token of a request, or its end, which is the last event of each accepted request. Valid during the call.
struct EngineEvent {
  std::int64_t id = 0;
  std::int32_t token = -1;  // -1 at the end
  // New text that can be shown: complete UTF-8 characters, no part of a stop string. Empty without a tokenizer.
  std::string_view text = {};
  std::span<const float> logits = {};      // [vocab_limit], that the token was sampled from; empty at the end
  const GenerateResult* result = nullptr;  // null until the end
};

// Continuous batching: each step evaluates one token of every running request and a chunk of the prompts of new ones,
// half of it for the oldest prompt and the rest for those with the fewest tokens left, so that a long prompt delays
// neither running requests nor a short prompt behind it. Requests get slots in order of arrival. A request's tokens do
// not depend on other requests or on engine options, except cache_type.
//
// Not thread-safe, and has no thread of its own: callbacks run on the thread that calls step(). A callback may submit
// and cancel. Model and tokenizer must outlive the engine; parameters must not change meanwhile.
class Engine {
 public:
  using Callback = std::function<bool(const EngineEvent&)>;

  // Throws std::invalid_argument for slots, queue or chunk below 1.
  explicit Engine(Model& model, const EngineOptions& options = {}, const Tokenizer* tokenizer = nullptr);
  ~Engine();  // unfinished requests get no event
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  // Queues a request and returns its id. The callback (may be empty) gets an event for each token (returning false ends
  // the request) and one at the end. Throws std::invalid_argument as generate() does, and QueueFullError.
  std::int64_t submit(std::vector<std::int32_t> prompt, GenerateOptions options, Callback callback);
  // Throws std::invalid_argument if submit() would; does nothing else.
  void check(std::span<const std::int32_t> prompt, const GenerateOptions& options) const;
  // No further token is reported; the next step ends the request before evaluating anything. False: no such id.
  bool cancel(std::int64_t id);
  void cancel_all();

  // Evaluates up to `slots` tokens and a chunk, and calls the callbacks. False when no request is left. An exception
  // from a callback ends its request and propagates from step() after all others have had their events; they continue
  // in the next step.
  bool step();

  // Adds an evaluated context to the prefix cache. Its state must be of the engine's model and cache type, else
  // std::invalid_argument.
  void add_prefix(TextContext context);

  std::int64_t running() const noexcept;      // requests with a slot
  std::int64_t waiting() const noexcept;      // requests in the queue
  std::size_t prefix_bytes() const noexcept;  // memory of the prefix cache

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Maximum memory of one request: keys and values of ctx_len tokens, and logits.
std::size_t request_bytes(const Model& model, std::optional<DType> type = std::nullopt);

}  // namespace qkv
