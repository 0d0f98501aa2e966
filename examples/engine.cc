// SPDX-License-Identifier: Apache-2.0
// Requests added and cancelled while others generate, on a model with random weights. Each request's tokens are the
// same as in a separate run, and a shared prompt prefix is evaluated only once.
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "qkv/engine.h"
#include "qkv/tokenizer.h"

int main() {
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  qkv::ModelConfig config;
  config.n_layer = 2;
  config.n_head = 4;
  config.d_model = 64;
  config.vocab_size = tokenizer.size();
  config.ctx_len = 256;
  qkv::Model model(config, 7);
  const std::string beginning = "You are a model of random weights and answer in bytes. ";
  qkv::GenerateOptions options;
  options.max_tokens = 20;

  // [quote]
  qkv::Engine engine(model, {.slots = 2, .queue = 8, .chunk = 32, .prefix_bytes = 16 << 20}, &tokenizer);
  std::map<std::int64_t, qkv::GenerateResult> ended;
  const auto callback = [&](const qkv::EngineEvent& event) {  // event.text: new text that can be shown
    if (event.result != nullptr) ended[event.id] = *event.result;
    return true;  // continue
  };
  const auto ask = [&](const std::string& text) {
    return engine.submit(tokenizer.encode(beginning + text), options, callback);
  };
  const std::int64_t first = ask("Who are you?"), second = ask("And where?");
  for (int i = 0; i < 6; ++i) engine.step();
  const std::int64_t third = ask("Since when?");  // waits for a free slot
  engine.cancel(second);                          // takes effect in the next step
  while (engine.step()) {
  }
  // [quote]

  int differ = 0;
  for (const auto& [id, result] : ended) {
    std::printf("%ld: %ld prompt tokens cached, %ld evaluated, %zu generated, %s\n", static_cast<long>(id),
                static_cast<long>(result.prompt_cached), static_cast<long>(result.prompt_evaluated),
                result.tokens.size(), std::string(qkv::stop_reason_name(result.reason)).c_str());
  }
  for (const auto& [id, text] : {std::pair(first, "Who are you?"), std::pair(third, "Since when?")})
    differ += qkv::generate(model, tokenizer.encode(beginning + text), options).tokens != ended[id].tokens;
  return differ;
}
