// SPDX-License-Identifier: Apache-2.0
// Random mixtures of requests, options, cancellations and engines: every token and every logit matches the request run
// alone.
#include <gtest/gtest.h>

#include <random>

#include "generate/engine_fixture.h"
#include "qkv/threads.h"
#include "qkv/tokenizer.h"

namespace {

using namespace qkv_test;

class Mixture {
 public:
  Mixture(std::uint64_t seed, qkv::Positions positions) : random_(seed), model_(tiny_model(48, 257, positions)) {}

  void run() {
    qkv::EngineOptions options;
    options.slots = pick(1, 6);
    options.queue = pick(1, 8);
    options.chunk = pick(1, 3) == 1 ? 512 : pick(1, 12);
    options.prefix_bytes = static_cast<std::size_t>(pick(0, 3)) * qkv::request_bytes(model_);
    const qkv::DType types[] = {qkv::DType::f32, qkv::DType::f16, qkv::DType::q8_0};
    options.cache_type = types[pick(0, 2)];
    qkv::set_num_threads(static_cast<int>(pick(1, 3)));
    Requests requests(model_, options, &tokenizer_);
    std::map<std::int64_t, std::pair<Ids, qkv::GenerateOptions>> asked;
    for (int left = 24; left > 0 || requests.engine.running() + requests.engine.waiting() > 0;) {
      for (std::int64_t more = pick(0, 3); more > 0 && left > 0; --more) {
        const Ids text = prompt();
        const qkv::GenerateOptions how = random_options();
        try {
          asked[requests.submit(text, how)] = {text, how};
          --left;
        } catch (const qkv::QueueFullError&) {
          EXPECT_EQ(requests.engine.waiting(), options.queue);
          break;
        }
      }
      if (pick(0, 9) == 0) requests.engine.cancel(pick(1, 24));
      requests.engine.step();
      EXPECT_LE(requests.engine.running(), options.slots);
      EXPECT_LE(requests.engine.prefix_bytes(), options.prefix_bytes);
    }
    EXPECT_EQ(asked.size(), 24u);
    for (const auto& [id, request] : asked) check(requests.seen[id], request.first, request.second, options);
    qkv::set_num_threads(0);
  }

 private:
  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Ids prompt() {  // few distinct letters, so that many share prefixes
    Ids text(static_cast<std::size_t>(pick(1, 3) == 1 ? pick(20, 60) : pick(1, 12)), 'a');
    for (std::size_t i = text.size() / 2; i < text.size(); ++i) text[i] = static_cast<std::int32_t>(pick('a', 'c'));
    return text;
  }
  qkv::GenerateOptions random_options() {
    qkv::GenerateOptions options = drawing(pick(0, 30));
    options.end_tokens = {static_cast<std::int32_t>(pick(0, 256)), 'z'};
    options.sampler.temperature = pick(0, 2);
    options.sampler.seed = static_cast<std::uint64_t>(pick(0, 1));
    options.sampler.stream = static_cast<std::uint64_t>(pick(0, 1));
    options.sampler.repeat_penalty = pick(0, 1) ? 1.2 : 1;
    for (std::int32_t id = 'a'; id < 'd'; ++id) options.sampler.logit_bias.push_back({id, 4});
    if (pick(0, 2) == 0) options.stop = {"ab", "cca"};
    options.shift = true;  // prompts may be longer than the context
    options.keep = pick(0, 6);
    return options;
  }
  void check(const Seen& seen, const Ids& text, const qkv::GenerateOptions& how, const qkv::EngineOptions& options) {
    const Seen expected = alone(model_, text, how, options.cache_type, &tokenizer_);
    EXPECT_EQ(seen.ends, 1);
    EXPECT_TRUE(seen.begins(expected));
    if (seen.result.reason == qkv::StopReason::cancelled) return;
    EXPECT_EQ(seen.tokens, expected.tokens);
    EXPECT_EQ(seen.text, expected.text);
    EXPECT_EQ(seen.result.reason, expected.result.reason);
    EXPECT_EQ(seen.result.context, expected.result.context);
    EXPECT_EQ(seen.result.shifts, expected.result.shifts);
    EXPECT_EQ(seen.result.prompt_cached + seen.result.prompt_evaluated,
              how.max_tokens == 0 ? 0 : expected.result.prompt_evaluated);
    EXPECT_TRUE(options.prefix_bytes > 0 || seen.result.prompt_cached == 0);
  }

  std::mt19937_64 random_;
  qkv::Model model_;
  const qkv::Tokenizer tokenizer_ = qkv::Tokenizer::bytes();
};

TEST(EngineMixture, EveryRequestMatchesASingleRunBitForBit) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    Mixture(seed, seed % 2 ? qkv::Positions::rotary : qkv::Positions::learned).run();
    if (HasFailure()) break;
  }
}

}  // namespace
