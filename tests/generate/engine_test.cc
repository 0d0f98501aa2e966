// SPDX-License-Identifier: Apache-2.0
// Concurrent requests: each as if run alone, shared prefixes, cancelling, limits.
#include "qkv/engine.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "generate/engine_fixture.h"
#include "qkv/threads.h"
#include "qkv/tokenizer.h"

namespace {

using namespace qkv_test;

const std::vector<Ids> kPrompts = {{1, 2, 3}, {4}, {5, 6, 1, 2, 3, 4, 5, 6, 10, 11, 12}, {1, 2}, {30, 31, 32, 33}};
constexpr std::size_t kMuch = 1 << 20;

TEST(Engine, EachTextMatchesASingleRun) {
  qkv::Model model = tiny_model();
  const qkv::GenerateOptions options = drawing(25);
  std::vector<Ids> expected;
  for (const Ids& prompt : kPrompts) expected.push_back(qkv::generate(model, prompt, options).tokens);
  for (const int threads : {1, 3}) {
    qkv::set_num_threads(threads);
    for (const std::int64_t slots : {1, 2, 4, 100}) {
      Requests requests(model, {.slots = slots, .chunk = 3});
      const std::vector<Seen> all = requests.run(kPrompts, options);
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(all[i].tokens, expected[i]) << i << " of " << slots;
        EXPECT_EQ(all[i].result.tokens, expected[i]);
        EXPECT_EQ(all[i].ends, 1);
        EXPECT_EQ(all[i].result.prompt_evaluated, static_cast<std::int64_t>(kPrompts[i].size()));
      }
    }
  }
  qkv::set_num_threads(0);
}

TEST(Engine, SamplesOfAPromptUseStreamsOfTheSeedAndEvaluateItOnce) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(12);
  for (const std::int64_t slots : {1, 2, 16}) {
    Requests requests(model, {.slots = slots, .prefix_bytes = qkv::request_bytes(model)});
    for (int i = 0; i < 6; ++i) {
      options.sampler.stream = static_cast<std::uint64_t>(i % 3);
      requests.submit(i < 3 ? Ids{1, 2, 3} : Ids{4, 5}, options);
    }
    requests.run();
    for (int i = 0; i < 6; ++i) {
      options.sampler.stream = static_cast<std::uint64_t>(i % 3);
      const Seen& seen = requests.seen[i + 1];
      EXPECT_EQ(seen.tokens, qkv::generate(model, i < 3 ? Ids{1, 2, 3} : Ids{4, 5}, options).tokens) << i;
      EXPECT_EQ(seen.result.prompt_evaluated, i % 3 > 0 ? 0 : i < 3 ? 3 : 2) << slots;  // evaluated once
    }
    EXPECT_NE(requests.seen[1].tokens, requests.seen[2].tokens);
  }
}

TEST(Engine, TheCallbackEndsOnlyItsText) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(10);
  options.end_tokens = {};
  std::map<std::int64_t, Seen> seen;
  qkv::Engine engine(model, {.slots = 3});
  for (const Ids& prompt : kPrompts)
    engine.submit(prompt, options,
                  [&](const qkv::EngineEvent& event) { return seen[event.id].take(event) && event.id != 2; });
  while (engine.step()) {
  }
  for (const auto& [id, text] : seen) {
    EXPECT_EQ(text.tokens.size(), id == 2 ? 1u : 10u);
    EXPECT_EQ(text.result.reason, id == 2 ? qkv::StopReason::callback : qkv::StopReason::max_tokens);
  }
}

TEST(Engine, TextsOfZeroTokensAndFullContexts) {
  qkv::Model model = tiny_model();
  EXPECT_FALSE(Requests(model).engine.step());
  for (const Seen& seen : Requests(model, {.slots = 2}).run(kPrompts, drawing(0))) {
    EXPECT_TRUE(seen.tokens.empty());
    EXPECT_EQ(seen.result.prompt_evaluated, 0);
    EXPECT_EQ(seen.ends, 1);
  }
  const auto full = Requests(model).run({Ids(40, 1), {1}}, drawing(3));
  EXPECT_EQ(full[0].result.reason, qkv::StopReason::context_full);
  EXPECT_NE(full[1].result.reason, qkv::StopReason::context_full);
}

TEST(Engine, RefusesBadArguments) {
  qkv::Model model = tiny_model();
  EXPECT_THROW(qkv::Engine(model, {.slots = 0}), std::invalid_argument);
  EXPECT_THROW(qkv::Engine(model, {.queue = 0}), std::invalid_argument);
  EXPECT_THROW(qkv::Engine(model, {.chunk = 0}), std::invalid_argument);
  Requests requests(model);
  qkv::GenerateOptions stop = drawing(1), bad = drawing(1), empty = drawing(1);
  stop.stop = {"x"};
  bad.sampler.top_p = 2;
  empty.stop = {""};
  EXPECT_THROW(requests.submit({}, drawing(1)), std::invalid_argument);
  EXPECT_THROW(requests.submit(Ids(41, 1), drawing(1)), std::invalid_argument);
  EXPECT_THROW(requests.submit({37}, drawing(1)), std::invalid_argument);
  EXPECT_THROW(requests.submit({1}, drawing(-1)), std::invalid_argument);
  for (const qkv::GenerateOptions& options : {stop, bad, empty})
    EXPECT_THROW(requests.engine.check(Ids{1}, options), std::invalid_argument);
  EXPECT_NO_THROW(requests.engine.check(Ids{1}, drawing(1)));
  EXPECT_EQ(requests.engine.waiting(), 0);
}

TEST(Engine, AFullQueueRefusesAndLaterAccepts) {
  qkv::Model model = tiny_model();
  Requests requests(model, {.slots = 2, .queue = 3});
  for (int i = 0; i < 3; ++i) requests.submit({1}, drawing(4));
  EXPECT_THROW(requests.submit({1}, drawing(4)), qkv::QueueFullError);
  requests.engine.step();
  EXPECT_EQ(requests.engine.running(), 2);
  EXPECT_EQ(requests.engine.waiting(), 1);
  EXPECT_EQ(requests.submit({1}, drawing(4)), 4);
  requests.run();
  for (int id = 1; id <= 4; ++id) EXPECT_EQ(requests.seen[id].ends, 1);
}

TEST(Engine, ALongPromptDelaysNeitherRunningRequestsNorAShortPrompt) {
  qkv::Model model = tiny_model(1000);
  qkv::GenerateOptions options = drawing(400);
  options.end_tokens = {};
  Requests requests(model, {.slots = 3, .chunk = 8});
  const std::int64_t first = requests.submit({1, 2}, options);
  requests.engine.step();
  const std::int64_t longer = requests.submit(Ids(800, 5), options),
                     shorter = requests.submit({3, 4, 5, 6, 7, 8}, options);
  for (std::size_t step = 1; step <= 2; ++step) {
    requests.engine.step();
    EXPECT_EQ(requests.seen[first].tokens.size(), 1 + step);
  }
  EXPECT_GE(requests.seen[shorter].tokens.size(), 1u);
  EXPECT_TRUE(requests.seen[longer].tokens.empty());
  for (int step = 0; step < 100; ++step) requests.engine.step();
  EXPECT_FALSE(requests.seen[longer].tokens.empty());  // 800 tokens in chunks of 8
  EXPECT_EQ(requests.seen[first].tokens.size(), 103u);
}

TEST(Engine, ALongPromptIsNotStarvedByShortOnes) {
  qkv::Model model = tiny_model(1000);
  Requests requests(model, {.slots = 4, .chunk = 8});
  const std::int64_t longer = requests.submit(Ids(400, 5), drawing(1));
  for (int step = 0; step < 100; ++step) {  // half of each chunk belongs to it
    while (requests.engine.waiting() < 4) requests.submit({1, 2, 3, 4, 5, 6}, drawing(1));
    requests.engine.step();
  }
  EXPECT_EQ(requests.seen[longer].ends, 1);
}

TEST(Engine, CancellingTakesEffectAtOnce) {
  qkv::Model model = tiny_model(400);
  qkv::GenerateOptions options = drawing(300);
  options.end_tokens = {};
  Requests requests(model, {.slots = 2, .chunk = 4});
  const std::int64_t runs = requests.submit({1}, options), reads = requests.submit(Ids(300, 2), options),
                     waits = requests.submit({3}, options);
  for (int i = 0; i < 5; ++i) requests.engine.step();
  const std::size_t before = requests.seen[runs].tokens.size();
  EXPECT_TRUE(requests.engine.cancel(runs));
  EXPECT_TRUE(requests.engine.cancel(reads));
  EXPECT_TRUE(requests.engine.cancel(waits));
  EXPECT_FALSE(requests.engine.cancel(99));
  EXPECT_FALSE(requests.engine.step());
  for (const std::int64_t id : {runs, reads, waits}) {
    EXPECT_EQ(requests.seen[id].ends, 1);
    EXPECT_EQ(requests.seen[id].result.reason, qkv::StopReason::cancelled);
    EXPECT_FALSE(requests.engine.cancel(id));
  }
  EXPECT_EQ(requests.seen[runs].tokens.size(), before);
  requests.submit({1}, options);
  requests.submit({2}, options);
  requests.engine.cancel_all();
  EXPECT_FALSE(requests.engine.step());
}

TEST(Engine, CallbacksMaySubmitAndCancelButNotStep) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(20);
  options.end_tokens = {};
  Requests requests(model);
  std::int64_t second = 0, third = 0;
  requests.engine.submit({1}, options, [&](const qkv::EngineEvent& event) {
    EXPECT_THROW(requests.engine.step(), std::invalid_argument);
    if (event.token >= 0 && third == 0) {
      third = requests.submit({5}, options);
      EXPECT_TRUE(requests.engine.cancel(second));
    }
    if (event.result != nullptr) requests.submit({6}, options);
    return true;
  });
  second = requests.submit({2}, options);
  requests.run();
  EXPECT_TRUE(requests.seen[second].tokens.empty());  // cancelled in the step that sampled its first
  EXPECT_EQ(requests.seen[third].tokens, alone(model, {5}, options).tokens);
  EXPECT_EQ(requests.seen[4].tokens, alone(model, {6}, options).tokens);
}

TEST(Engine, ACallbackExceptionEndsOnlyItsRequest) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(8);
  options.end_tokens = {};
  Requests requests(model);
  int events = 0;
  const std::int64_t good = requests.submit({1, 2}, options);
  requests.engine.submit({1}, options, [&](const qkv::EngineEvent&) -> bool {
    ++events;
    throw std::runtime_error("mine");
  });
  const std::int64_t last = requests.submit({3}, options);
  EXPECT_THROW(requests.engine.step(), std::runtime_error);
  EXPECT_EQ(requests.seen[last].tokens.size(), 1u);
  requests.run();
  EXPECT_EQ(events, 1);
  EXPECT_EQ(requests.seen[good].tokens, alone(model, {1, 2}, options).tokens);
  EXPECT_EQ(requests.seen[last].tokens, alone(model, {3}, options).tokens);
}

TEST(Engine, AFailedRequestDoesNotAffectOthers) {
  qkv::Model model = tiny_model();
  qkv::GenerateOptions options = drawing(8), impossible = options;
  for (std::int32_t id = 0; id < 37; ++id)
    impossible.sampler.logit_bias.push_back({id, -std::numeric_limits<double>::infinity()});
  Requests requests(model);
  const std::int64_t good = requests.submit({1, 2}, options), bad = requests.submit({1}, impossible);
  requests.run();
  EXPECT_EQ(requests.seen[bad].result.reason, qkv::StopReason::failed);
  EXPECT_THROW(std::rethrow_exception(requests.seen[bad].result.error), qkv::SamplingError);
  EXPECT_EQ(requests.seen[good].tokens, alone(model, {1, 2}, options).tokens);
  EXPECT_THROW(qkv::generate(model, Ids{1}, impossible), qkv::SamplingError);
}

TEST(Engine, CachedTokensAreNotEvaluatedAgainAndChangeNothing) {
  qkv::Model model = tiny_model();
  const qkv::GenerateOptions options = drawing(8);
  const Ids prompt = {1, 2, 3, 4, 5, 6};
  const Ids wanted = qkv::generate(model, prompt, options).tokens;
  Requests requests(model, {.prefix_bytes = kMuch});
  const auto next = [&](const Ids& text) { return requests.run({text}, options).front(); };
  next({1, 2, 3, 4, 9, 9, 9, 9, 9, 9, 9});
  Seen seen = next(prompt);
  EXPECT_EQ(seen.tokens, wanted);
  EXPECT_EQ(seen.result.prompt_tokens, 6);
  EXPECT_EQ(seen.result.prompt_cached, 4);
  EXPECT_EQ(seen.result.prompt_evaluated, 2);
  seen = next(prompt);  // fully cached, including its logits
  EXPECT_EQ(seen.tokens, wanted);
  EXPECT_EQ(seen.result.prompt_evaluated, 0);
  seen = next({1, 2, 3, 4, 5});  // the logits are not cached here
  EXPECT_EQ(seen.tokens, qkv::generate(model, Ids{1, 2, 3, 4, 5}, options).tokens);
  EXPECT_EQ(seen.result.prompt_evaluated, 1);
  // Continuing the previous output.
  Ids longer = next(prompt).result.context;
  longer.insert(longer.end(), {20, 21});
  seen = next(longer);
  EXPECT_EQ(seen.tokens, qkv::generate(model, longer, options).tokens);
  EXPECT_LE(seen.result.prompt_evaluated, 3);
}

TEST(Engine, AGivenPrefixIsSharedByRequests) {
  qkv::Model model = tiny_model();
  const std::vector<Ids> prompts = {{1, 2, 3, 4, 5}, {1, 2, 3}, {6, 1}};
  qkv::TextContext context;
  qkv::prefill(model, Ids{1, 2, 3, 4}, context);
  Requests requests(model, {.prefix_bytes = kMuch});
  requests.engine.add_prefix(context);
  const auto all = requests.run(prompts, drawing(6));
  EXPECT_EQ(all[0].result.prompt_evaluated, 1);
  EXPECT_EQ(all[1].result.prompt_evaluated, 1);
  EXPECT_EQ(all[2].result.prompt_evaluated, 2);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i].tokens, qkv::generate(model, prompts[i], drawing(6)).tokens);
  qkv::Model other = tiny_model(41);
  EXPECT_THROW(Requests(other, {.prefix_bytes = kMuch}).engine.add_prefix(context), std::invalid_argument);
  EXPECT_THROW(Requests(model, {.cache_type = qkv::DType::q8_0}).engine.add_prefix(context), std::invalid_argument);
  context.tokens.pop_back();
  EXPECT_THROW(requests.engine.add_prefix(context), std::invalid_argument);
}

TEST(Engine, RequestsWaitForAPrefixThatIsBeingEvaluated) {
  qkv::Model model = tiny_model(400);
  Ids beginning(200, 5), first = beginning, second = beginning;
  first.push_back(1);
  second.insert(second.end(), {2, 3});
  Requests requests(model, {.chunk = 16, .prefix_bytes = kMuch});
  const auto all = requests.run({first, second, {5, 6}}, drawing(5));
  EXPECT_EQ(all[0].result.prompt_evaluated, 201);
  EXPECT_EQ(all[1].result.prompt_evaluated, 2);
  EXPECT_EQ(all[1].tokens, qkv::generate(model, second, drawing(5)).tokens);
  // After cancelling, its evaluated tokens stay cached.
  Requests cancelled(model, {.chunk = 16, .prefix_bytes = kMuch});
  const std::int64_t one = cancelled.submit(first, drawing(5)), two = cancelled.submit(second, drawing(5));
  for (int i = 0; i < 3; ++i) cancelled.engine.step();
  cancelled.engine.cancel(one);
  cancelled.run();
  EXPECT_EQ(cancelled.seen[two].tokens, all[1].tokens);
  EXPECT_EQ(cancelled.seen[two].result.prompt_cached, 48);
}

TEST(Engine, PrefixesStayWithinTheirMemoryLimit) {
  qkv::Model model = tiny_model();
  const std::size_t one = qkv::request_bytes(model);
  for (const std::size_t limit : {std::size_t{0}, one / 2, one, 3 * one}) {
    Requests requests(model, {.slots = 2, .prefix_bytes = limit});
    for (std::int32_t i = 0; i < 12; ++i) requests.submit({i, i + 1, i + 2}, drawing(30));
    std::size_t most = 0;
    while (requests.engine.step()) {
      EXPECT_LE(requests.engine.prefix_bytes(), limit);
      most = std::max(most, requests.engine.prefix_bytes());
    }
    EXPECT_EQ(most > 0, limit >= one);
  }
}

TEST(Engine, TextsAreWholeCharactersAndEndAtStopStrings) {
  const qkv::Tokenizer tokenizer = qkv::Tokenizer::bytes();
  qkv::Model model = tiny_model(64, 257);
  qkv::GenerateOptions options = drawing(6);
  options.end_tokens = {};
  const auto saying = [&](const std::string& text) {  // a text of two bytes, repeated
    qkv::GenerateOptions says = options;
    for (const char byte : text) says.sampler.logit_bias.push_back({static_cast<unsigned char>(byte), 100});
    return says;
  };
  qkv::GenerateOptions stop = saying("A");
  stop.stop = {"AAA"};
  Seen seen = alone(model, {1}, stop, {}, &tokenizer);
  EXPECT_EQ(seen.text, "");
  EXPECT_EQ(seen.tokens, Ids(3, 'A'));
  EXPECT_EQ(seen.result.reason, qkv::StopReason::stop_string);
  stop.stop = {"AAAAAAAA"};  // does not occur, so the held-back text is shown at the end
  seen = alone(model, {1}, stop, {}, &tokenizer);
  EXPECT_EQ(seen.text, "AAAAAA");
  EXPECT_EQ(seen.result.reason, qkv::StopReason::max_tokens);
  seen = alone(model, {1}, saying("\xE6"), {}, &tokenizer);  // the first byte of a character, six times
  std::string replaced;
  for (int i = 0; i < 6; ++i) replaced += "\xEF\xBF\xBD";
  EXPECT_EQ(seen.text, replaced);
  EXPECT_EQ(alone(model, {1}, saying("A")).text, "");  // no tokenizer
}

}  // namespace
