// SPDX-License-Identifier: Apache-2.0
#include "qkv/engine.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "generate/sequence.h"

namespace qkv {
namespace {

using Request = std::unique_ptr<Sequence>;

[[noreturn]] void refuse(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[engine] expected " + expected + "; found " + found);
}

void require_one(const char* name, std::int64_t value) {
  if (value < 1) refuse(std::string(name) + " of at least 1", std::to_string(value));
}

ModelState new_state(const Model& model, std::optional<DType> type) {
  return type ? model.make_state(*type) : model.make_state();
}

}  // namespace

struct Engine::Impl {
  Impl(Model& of, const EngineOptions& given, const Tokenizer* words)
      : model(of), options(given), tokenizer(words), cache(given.prefix_bytes) {
    require_one("slots", options.slots);
    require_one("queue", options.queue);
    require_one("chunk", options.chunk);
    new_state(model, options.cache_type);  // throws for an unsupported cache type
  }

  void check(std::span<const std::int32_t> prompt, const GenerateOptions& asked) const {
    check_request(model.config(), prompt, asked);
    if (!asked.stop.empty() && tokenizer == nullptr) refuse("a tokenizer for stop strings", "an engine without one");
  }

  template <class Do>
  void for_all(const Do& work) {
    std::for_each(running.begin(), running.end(), work);
    std::for_each(queue.begin(), queue.end(), work);
  }

  bool shares() const noexcept { return options.prefix_bytes > 0; }
  void step();
  void end_cancelled();
  void admit();
  void start(Sequence& request);
  void start_all() {
    for (const Request& request : running)
      if (!request->started() && !request->ended()) start(*request);
  }
  std::vector<std::int64_t> schedule() const;
  void evaluate();
  void evaluate(std::span<const DecodePart> parts, std::span<Sequence* const> of);
  void sample();
  void remove_ended();

  Model& model;
  EngineOptions options;
  const Tokenizer* tokenizer;
  PrefixCache cache;
  std::deque<Request> queue;
  std::vector<Request> running;  // oldest first
  std::int64_t last_id = 0;
  bool stepping = false;
  std::exception_ptr thrown;  // by a callback in the current step
};

void Engine::Impl::step() {
  end_cancelled();
  admit();
  start_all();
  evaluate();
  start_all();  // requests that waited for a prefix that has just been evaluated
  sample();
  remove_ended();
}

// Callbacks may submit requests, so a request is removed from the waiting lists before its callback is called.
void Engine::Impl::end_cancelled() {
  for (const Request& request : running)
    if (request->cancelled()) request->end(StopReason::cancelled);
  std::vector<Request> ended;
  for (Request& request : queue)
    if (request->cancelled()) ended.push_back(std::move(request));
  std::erase(queue, nullptr);
  for (const Request& request : ended) {
    request->end(StopReason::cancelled);
    if (!thrown) thrown = request->thrown();
  }
  remove_ended();
}

void Engine::Impl::admit() {
  while (!queue.empty() && static_cast<std::int64_t>(running.size()) < options.slots) {
    running.push_back(std::move(queue.front()));
    queue.pop_front();
    running.back()->admit();
  }
}

// Starts with a copy of the longest prefix that the prompt shares with a running request or a cached one. While another
// request is evaluating at least half of the missing tokens, this one waits for it.
void Engine::Impl::start(Sequence& request) {
  const std::span<const std::int32_t> text = request.prefix().tokens;
  const Prefix* source = nullptr;
  std::int64_t count = 0, later = 0;
  if (shares()) {
    for (const Request& other : running) {
      if (!other->started()) continue;
      if (other->prefilling()) later = std::max(later, other->prefix().reusable(text, true));
      const std::int64_t reusable = other->prefix().reusable(text);
      if (reusable <= count) continue;
      count = reusable;
      source = &other->prefix();
    }
  }
  const Prefix* cached = cache.find(text, count);
  const auto length = static_cast<std::int64_t>(text.size());
  if (later > count && 2 * (later - count) >= length - count) return;
  try {
    std::vector<float> logits;
    if (count == length) logits = (cached ? cached : source)->logits;
    request.start(cached   ? cache.take(cached, count)
                  : source ? source->state.prefix(count)
                           : new_state(model, options.cache_type),
                  std::move(logits));
  } catch (...) {
    request.fail(std::current_exception());
  }
}

// Number of tokens to evaluate in this step per running request: one for those generating, and a chunk of prompts.
std::vector<std::int64_t> Engine::Impl::schedule() const {
  std::vector<std::int64_t> pending, counts(running.size(), 0);
  std::vector<std::size_t> prompts;  // oldest first
  for (std::size_t i = 0; i < running.size(); ++i) {
    const bool waits = running[i]->ended() || running[i]->cancelled() || !running[i]->started();
    pending.push_back(waits ? 0 : static_cast<std::int64_t>(running[i]->pending().size()));
    if (pending[i] == 1) counts[i] = 1;
    if (pending[i] > 1) prompts.push_back(i);
  }
  std::int64_t left = options.chunk;
  const auto give = [&](std::size_t i, std::int64_t most) {
    const std::int64_t more = std::min({pending[i] - counts[i], most, left});
    counts[i] += more;
    left -= more;
  };
  if (!prompts.empty()) give(prompts.front(), (left + 1) / 2);
  std::stable_sort(prompts.begin(), prompts.end(),
                   [&](std::size_t a, std::size_t b) { return pending[a] < pending[b]; });
  for (const std::size_t i : prompts) give(i, left);
  return counts;
}

void Engine::Impl::evaluate() {
  const std::vector<std::int64_t> counts = schedule();
  std::vector<DecodePart> parts;
  std::vector<Sequence*> of;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] == 0) continue;
    parts.push_back(running[i]->part(counts[i]));
    of.push_back(running[i].get());
  }
  if (!parts.empty()) evaluate(parts, of);
}

// If the batch fails, evaluates each part separately, so that only parts that cannot be evaluated fail.
void Engine::Impl::evaluate(std::span<const DecodePart> parts, std::span<Sequence* const> of) {
  std::vector<std::int64_t> sizes;
  for (const DecodePart& part : parts) sizes.push_back(part.state->size());
  try {
    model.decode_batch(parts);
  } catch (...) {
    for (std::size_t i = 0; i < parts.size(); ++i) parts[i].state->truncate(sizes[i]);
    if (parts.size() == 1) return of[0]->fail(std::current_exception());
    for (std::size_t i = 0; i < parts.size(); ++i) evaluate(parts.subspan(i, 1), of.subspan(i, 1));
    return;
  }
  for (Sequence* request : of) request->evaluated(shares());
}

void Engine::Impl::sample() {
  std::vector<Sequence*> ready;
  for (const Request& request : running)
    if (request->ready()) ready.push_back(request.get());
  parallel_for(static_cast<std::int64_t>(ready.size()),
               [&](std::int64_t i) { ready[static_cast<std::size_t>(i)]->sample(); });
  for (Sequence* request : ready) {
    try {
      request->deliver(model);
    } catch (...) {
      request->fail(std::current_exception());
    }
  }
}

void Engine::Impl::remove_ended() {
  std::erase_if(running, [&](const Request& request) {
    if (!request->ended()) return false;
    if (!thrown) thrown = request->thrown();
    if (shares()) cache.add(request->take_prefix());
    return true;
  });
}

Engine::Engine(Model& model, const EngineOptions& options, const Tokenizer* tokenizer)
    : impl_(std::make_unique<Impl>(model, options, tokenizer)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

void Engine::check(std::span<const std::int32_t> prompt, const GenerateOptions& options) const {
  impl_->check(prompt, options);
}

std::int64_t Engine::submit(std::vector<std::int32_t> prompt, GenerateOptions options, Callback callback) {
  check(prompt, options);
  if (waiting() >= impl_->options.queue)
    throw QueueFullError("[engine] the queue is full: " + std::to_string(impl_->options.queue) + " waiting requests");
  impl_->queue.push_back(std::make_unique<Sequence>(impl_->last_id + 1, impl_->model.config(), impl_->tokenizer,
                                                    std::move(prompt), std::move(options), std::move(callback)));
  return ++impl_->last_id;
}

bool Engine::cancel(std::int64_t id) {
  bool found = false;
  impl_->for_all([&](const Request& request) {
    if (request->id() != id || request->ended()) return;
    request->cancel();
    found = true;
  });
  return found;
}

void Engine::cancel_all() {
  impl_->for_all([](const Request& request) { request->cancel(); });
}

bool Engine::step() {
  if (std::exchange(impl_->stepping, true)) refuse("step() outside callbacks", "a call from a callback");
  try {
    impl_->step();
  } catch (...) {
    if (!impl_->thrown) impl_->thrown = std::current_exception();
  }
  impl_->stepping = false;
  if (impl_->thrown) std::rethrow_exception(std::exchange(impl_->thrown, nullptr));
  return running() + waiting() > 0;
}

void Engine::add_prefix(TextContext context) {
  const ModelState own = new_state(impl_->model, impl_->options.cache_type);
  const auto same = [](const KvCache& a, const KvCache& b) {
    return a.bytes_per_token() == b.bytes_per_token() && a.query_dtype() == b.query_dtype() &&
           a.capacity() == b.capacity();
  };
  const std::vector<KvCache>& layers = context.state.layers;
  if (!std::equal(layers.begin(), layers.end(), own.layers.begin(), own.layers.end(), same) ||
      static_cast<std::int64_t>(context.tokens.size()) < context.state.size())
    refuse("a state with the engine's model and cache type, and its tokens", "a different one");
  impl_->cache.add({std::move(context.tokens), std::move(context.state), {}, 0});
}

std::int64_t Engine::running() const noexcept { return static_cast<std::int64_t>(impl_->running.size()); }
std::int64_t Engine::waiting() const noexcept { return static_cast<std::int64_t>(impl_->queue.size()); }
std::size_t Engine::prefix_bytes() const noexcept { return impl_->cache.bytes(); }

std::size_t request_bytes(const Model& model, std::optional<DType> type) {
  const ModelConfig& config = model.config();
  return static_cast<std::size_t>(config.ctx_len) * (new_state(model, type).bytes_per_token() + 4) +
         4 * static_cast<std::size_t>(config.vocab_size);
}

}  // namespace qkv
