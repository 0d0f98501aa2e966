// SPDX-License-Identifier: Apache-2.0
// Small models, and engines that record the events of each request.
#pragma once

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "qkv/engine.h"

namespace qkv_test {

using Ids = std::vector<std::int32_t>;

inline qkv::Model tiny_model(std::int64_t ctx_len = 40, std::int64_t vocab_size = 37,
                             qkv::Positions positions = qkv::Positions::rotary) {
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.n_kv_head = 2;
  config.d_model = 16;
  config.vocab_size = vocab_size;
  config.ctx_len = ctx_len;
  config.positions = positions;
  return qkv::Model(config, 8);
}

inline qkv::GenerateOptions drawing(std::int64_t max_tokens) {
  qkv::GenerateOptions options;
  options.sampler = {.temperature = 1, .top_k = 0, .top_p = 1, .min_p = 0, .repeat_penalty = 1, .seed = 21};
  options.max_tokens = max_tokens;
  options.end_tokens = {7, 8, 9};  // texts end at different times
  return options;
}

// The recorded events of a request.
struct Seen {
  Ids tokens;
  std::string text;
  std::vector<float> logits;  // [tokens, vocab_limit]
  qkv::GenerateResult result;
  int ends = 0;

  bool take(const qkv::EngineEvent& event) {
    text += event.text;
    if (event.result != nullptr) {
      result = *event.result;
      ++ends;
    } else {
      tokens.push_back(event.token);
      logits.insert(logits.end(), event.logits.begin(), event.logits.end());
    }
    return true;
  }
  // Whether this is a prefix of another record (or equal to it), bit for bit.
  bool begins(const Seen& other) const {
    return tokens.size() <= other.tokens.size() && std::equal(tokens.begin(), tokens.end(), other.tokens.begin()) &&
           logits.size() <= other.logits.size() &&
           std::memcmp(logits.data(), other.logits.data(), logits.size() * sizeof(float)) == 0;
  }
};

class Requests {
 public:
  explicit Requests(qkv::Model& model, const qkv::EngineOptions& options = {},
                    const qkv::Tokenizer* tokenizer = nullptr)
      : engine(model, options, tokenizer) {}

  std::int64_t submit(Ids prompt, qkv::GenerateOptions options) {
    return engine.submit(std::move(prompt), std::move(options),
                         [this](const qkv::EngineEvent& event) { return seen[event.id].take(event); });
  }
  void run() {
    while (engine.step()) {
    }
  }
  // Submits all prompts at once; returns the records in the same order.
  std::vector<Seen> run(const std::vector<Ids>& prompts, const qkv::GenerateOptions& options) {
    std::vector<std::int64_t> ids;
    for (const Ids& prompt : prompts) ids.push_back(submit(prompt, options));
    run();
    std::vector<Seen> all;
    for (const std::int64_t id : ids) all.push_back(seen[id]);
    return all;
  }

  std::map<std::int64_t, Seen> seen;
  qkv::Engine engine;
};

inline Seen alone(qkv::Model& model, const Ids& prompt, const qkv::GenerateOptions& options,
                  std::optional<qkv::DType> type = std::nullopt, const qkv::Tokenizer* tokenizer = nullptr) {
  Requests requests(model, {.slots = 1, .chunk = 4096, .cache_type = type}, tokenizer);
  return requests.run({prompt}, options).front();
}

}  // namespace qkv_test
