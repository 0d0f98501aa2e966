// SPDX-License-Identifier: Apache-2.0
// Prefill and decode with a cache, token by token or in chunks, give the same bits as the full forward pass.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

void expect_decoding_equals_full_pass(const ModelConfig& c, std::int64_t ctx, const std::vector<std::int64_t>& chunks,
                                      DType compute_dtype = DType::f32) {
  Model model(c, 1);
  test::disturb<float>(model, 0.1, 2);
  model.set_compute_dtype(compute_dtype);
  const test::Tokens tokens = test::random_tokens(c, 1, ctx, 3);
  const Tensor full = model.logits(tokens);  // [1, ctx, vocab_size]
  ModelState state = model.make_state();
  std::vector<float> logits(static_cast<std::size_t>(c.vocab_size));
  std::int64_t at = 0;
  for (std::size_t i = 0; at < ctx; ++i) {
    const std::int64_t count = std::min(chunks[i % chunks.size()], ctx - at);
    model.decode(std::span(tokens.tokens).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count)), state,
                 logits);
    at += count;
    EXPECT_EQ(state.size(), at);
    ASSERT_EQ(std::memcmp(logits.data(), full.data() + (at - 1) * c.vocab_size, logits.size() * sizeof(float)), 0)
        << "after " << at << " tokens";
  }
}

TEST(Prefill, TokenByTokenAndInChunksMatchesTheFullPassBitForBit) {
  std::vector<test::NamedConfig> models = test::tiny_models();
  for (test::NamedConfig& one : test::models_of_many_options()) models.push_back(std::move(one));
  for (auto& [name, c] : models) {
    test::change_layers(c, [](LayerConfig& one) {
      one.head_dim = one.v_head_dim = 20;
      one.d_ff = one.d_ff == 40 ? 90 : 150;
      if (one.window_left > 0) one.window_left = 100;
    });
    c.d_model = 56;
    c.vocab_size = 77;
    c.ctx_len = 310;
  }
  models[0].config.v_head_dim = 9;
  for (const auto& [name, c] : models)
    for (const std::vector<std::int64_t>& chunks :
         {std::vector<std::int64_t>{1}, {7}, {64, 1, 1}, {200, 1, 17}, {310}}) {
      SCOPED_TRACE(name + " in chunks of " + std::to_string(chunks[0]));
      expect_decoding_equals_full_pass(c, 310, chunks);
    }
}

TEST(Prefill, AnyCombinationOfOptionsAtAnyNumberOfThreads) {
  for (std::uint64_t seed = 300; seed < 340; ++seed) {
    SCOPED_TRACE(seed);
    set_num_threads(1 + static_cast<int>(seed % 4));
    const ModelConfig c = test::random_config(seed);
    expect_decoding_equals_full_pass(c, c.ctx_len, {1, 2, 3});
  }
  set_num_threads(0);
}

TEST(Prefill, EachOption) {
  for (const auto& [name, c] : test::models_of_many_shapes())
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name + " " + std::string(dtype_name(compute_dtype)));
      expect_decoding_equals_full_pass(c, c.ctx_len, {1}, compute_dtype);
      expect_decoding_equals_full_pass(c, c.ctx_len, {3, 1, 2}, compute_dtype);
    }
}

TEST(Prefill, AFullContextIsRefusedAndTheStateUnchanged) {
  const ModelConfig c = test::tiny_llama();
  Model model(c, 1);
  const test::Tokens tokens = test::random_tokens(c, 1, c.ctx_len, 3);
  ModelState state = model.make_state();
  std::vector<float> logits(19), again(19);
  model.decode(std::span(tokens.tokens).first(10), state, logits);
  EXPECT_THROW(model.decode(std::span(tokens.tokens).first(3), state, again), std::invalid_argument);
  EXPECT_THROW(model.decode({}, state, again), std::invalid_argument);
  const std::vector<std::int32_t> bad{1, 99};
  EXPECT_THROW(model.decode(bad, state, again), std::invalid_argument);
  EXPECT_EQ(state.size(), 10);
  ModelState copy = state;  // a copy continues independently
  model.decode(std::span(tokens.tokens).subspan(10, 2), state, logits);
  EXPECT_EQ(copy.size(), 10);
  model.decode(std::span(tokens.tokens).subspan(10, 2), copy, again);
  EXPECT_EQ(logits, again);
  EXPECT_EQ(state.size(), 12);
  std::vector<float> small(18);
  EXPECT_THROW(model.decode(std::span(tokens.tokens).first(1), copy, small), std::invalid_argument);
}

TEST(Prefill, RefusesAnEmptyState) {
  Model model(test::tiny_andrea(), 1);
  ModelState nothing;
  std::vector<float> logits(19);
  const std::vector<std::int32_t> token{1};
  EXPECT_THROW(model.decode(token, nothing, logits), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
