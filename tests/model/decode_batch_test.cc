// SPDX-License-Identifier: Apache-2.0
// Several sequences at once, states that are truncated or restored from bytes, and caches of other types.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

using Logits = std::vector<float>;

Logits decode_alone(Model& model, std::span<const std::int32_t> tokens, ModelState& state) {
  Logits logits(static_cast<std::size_t>(model.config().vocab_size));
  model.decode(tokens, state, logits);
  return logits;
}

Model disturbed(const ModelConfig& c, DType compute_dtype) {
  Model model(c, 1);
  test::disturb<float>(model, 0.1, 2);
  model.set_compute_dtype(compute_dtype);
  return model;
}

// Sequences of different lengths that are continued together, by one token or several, have the same bits as alone.
void expect_batches_equal_single_sequences(const ModelConfig& c, DType compute_dtype) {
  Model model = disturbed(c, compute_dtype);
  const std::size_t kSequences = 5;
  std::vector<test::Tokens> texts;
  std::vector<ModelState> together, alone;
  for (std::size_t i = 0; i < kSequences; ++i) {
    texts.push_back(test::random_tokens(c, 1, c.ctx_len, 10 + i));
    together.push_back(model.make_state());
    alone.push_back(model.make_state());
  }
  std::vector<std::size_t> at(kSequences, 0);
  for (std::size_t step = 0; step < 3; ++step) {
    std::vector<DecodePart> parts;
    std::vector<Logits> logits(kSequences, Logits(static_cast<std::size_t>(c.vocab_size)));
    std::vector<std::size_t> counts;
    for (std::size_t i = 0; i < kSequences; ++i) {
      counts.push_back(step == 1 ? 1 : 1 + (i + step) % 3);
      parts.push_back({std::span(texts[i].tokens).subspan(at[i], counts[i]), &together[i],
                       i == 3 ? std::span<float>() : std::span<float>(logits[i])});
    }
    model.decode_batch(parts);
    for (std::size_t i = 0; i < kSequences; ++i) {
      const Logits one = decode_alone(model, std::span(texts[i].tokens).subspan(at[i], counts[i]), alone[i]);
      at[i] += counts[i];
      EXPECT_EQ(together[i].size(), static_cast<std::int64_t>(at[i]));
      if (i == 3) continue;  // logits not requested
      EXPECT_EQ(std::memcmp(one.data(), logits[i].data(), one.size() * sizeof(float)), 0) << i;
    }
  }
}

TEST(DecodeBatch, MatchesEachSequenceAloneBitForBit) {
  for (const auto& [name, c] : test::tiny_models())
    for (const DType compute_dtype : {DType::f32, DType::bf16})
      for (const int threads : {1, 2, 3}) {
        SCOPED_TRACE(name + " " + std::string(dtype_name(compute_dtype)));
        set_num_threads(threads);
        expect_batches_equal_single_sequences(c, compute_dtype);
      }
  set_num_threads(0);
}

TEST(DecodeBatch, EachOption) {
  std::vector<test::NamedConfig> models = test::models_of_each_option();
  for (test::NamedConfig& one : test::models_of_many_options()) models.push_back(std::move(one));
  for (const auto& [name, c] : models)
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name + " " + std::string(dtype_name(compute_dtype)));
      expect_batches_equal_single_sequences(c, compute_dtype);
    }
}

TEST(DecodeBatch, RefusesInvalidArgumentsAndChangesNothing) {
  const ModelConfig c = test::tiny_llama();
  Model model = disturbed(c, DType::f32);
  const test::Tokens text = test::random_tokens(c, 1, c.ctx_len, 3);
  const std::span<const std::int32_t> tokens(text.tokens);
  ModelState a = model.make_state(), b = model.make_state();
  decode_alone(model, tokens.first(10), a);
  const std::vector<DecodePart> twice{{tokens.first(1), &a}, {tokens.first(1), &a}};
  EXPECT_THROW(model.decode_batch(twice), std::invalid_argument);
  const std::vector<DecodePart> too_long{{tokens.first(1), &b}, {tokens.first(3), &a}};
  EXPECT_THROW(model.decode_batch(too_long), std::invalid_argument);
  const std::vector<DecodePart> none{{tokens.first(1), nullptr}};
  EXPECT_THROW(model.decode_batch(none), std::invalid_argument);
  EXPECT_EQ(a.size(), 10);
  EXPECT_EQ(b.size(), 0);
  model.decode_batch({});
}

TEST(ModelState, TruncatedContinuesAsIfTheRestHadNotBeenEvaluated) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::q8_0}) {
    const ModelConfig c = test::tiny_llama();
    Model model = disturbed(c, DType::f32);
    const test::Tokens text = test::random_tokens(c, 1, c.ctx_len, 3);
    const std::span<const std::int32_t> tokens(text.tokens);
    ModelState state = model.make_state(type), fresh = model.make_state(type);
    decode_alone(model, tokens.first(9), state);
    EXPECT_THROW(state.truncate(10), std::invalid_argument);
    EXPECT_THROW(state.truncate(-1), std::invalid_argument);
    state.truncate(4);
    EXPECT_EQ(state.size(), 4);
    decode_alone(model, tokens.first(4), fresh);
    EXPECT_EQ(decode_alone(model, tokens.subspan(6, 3), state), decode_alone(model, tokens.subspan(6, 3), fresh));
  }
}

TEST(ModelState, RoundTripsThroughBytes) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::q8_0}) {
    SCOPED_TRACE(dtype_name(type));
    const ModelConfig c = test::tiny_gpt2();
    Model model = disturbed(c, DType::bf16);
    const test::Tokens text = test::random_tokens(c, 1, c.ctx_len, 3);
    const std::span<const std::int32_t> tokens(text.tokens);
    ModelState state = model.make_state(type), again = model.make_state(type);
    decode_alone(model, tokens.first(7), state);
    const std::vector<std::byte> bytes = state.to_bytes();
    EXPECT_EQ(bytes.size(), 64 + 7 * state.bytes_per_token());
    decode_alone(model, tokens.first(2), again);
    again.from_bytes(bytes);
    EXPECT_EQ(again.size(), 7);
    EXPECT_EQ(again.to_bytes(), bytes);
    EXPECT_EQ(decode_alone(model, tokens.subspan(7, 2), state), decode_alone(model, tokens.subspan(7, 2), again));
  }
}

TEST(ModelState, RefusesInvalidBytes) {
  const ModelConfig c = test::tiny_gpt2();
  Model model = disturbed(c, DType::f32);
  const test::Tokens text = test::random_tokens(c, 1, c.ctx_len, 3);
  ModelState state = model.make_state();
  decode_alone(model, std::span(text.tokens).first(7), state);
  std::vector<std::byte> bytes = state.to_bytes();
  ModelState other = model.make_state(DType::q8_0);
  EXPECT_THROW(other.from_bytes(bytes), std::invalid_argument);
  const auto refuses = [&](std::vector<std::byte> bad) {
    EXPECT_THROW(state.from_bytes(bad), std::invalid_argument);
    EXPECT_EQ(state.to_bytes(), bytes);
  };
  refuses({});
  for (const std::size_t cut : {std::size_t{1}, std::size_t{63}, bytes.size() - 1})
    refuses(std::vector<std::byte>(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)));
  for (const std::size_t at : {0, 8, 16, 17, 23, 24, 32}) {  // magic, layers, tokens, bytes per token, type
    std::vector<std::byte> bad = bytes;
    bad[at] ^= std::byte{0x41};
    refuses(bad);
  }
  std::vector<std::byte> longer = bytes;
  longer.push_back(std::byte{0});
  refuses(longer);
}

// The relative distance between the logits with a cache of this type and with an f32 cache.
double distance(DType type) {
  ModelConfig c = test::tiny_llama();
  c.ctx_len = 200;
  c.head_dim = c.v_head_dim = 32;
  c = c.resolved();
  Model model = disturbed(c, DType::f32);
  const test::Tokens text = test::random_tokens(c, 1, c.ctx_len, 3);
  ModelState exact = model.make_state(), rounded = model.make_state(type);
  const Logits a = decode_alone(model, text.tokens, exact), b = decode_alone(model, text.tokens, rounded);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(a[i] - b[i], 2);
    size += std::pow(a[i], 2);
  }
  return std::sqrt(difference / size);
}

TEST(CacheType, ErrorFollowsItsRounding) {
  EXPECT_EQ(distance(DType::f32), 0);
  const double bf16 = distance(DType::bf16), f16 = distance(DType::f16), q8_0 = distance(DType::q8_0);
  EXPECT_GT(bf16, 1e-6);
  EXPECT_LT(bf16, 1e-2);
  EXPECT_GT(f16, 1e-7);
  EXPECT_LT(f16, 1e-3);
  EXPECT_GT(q8_0, 1e-6);
  EXPECT_LT(q8_0, 1e-2);
}

TEST(CacheType, HasAName) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16, DType::q8_0})
    EXPECT_EQ(dtype_from_name(dtype_name(type)), type);
  const Model model = disturbed(test::tiny_gpt2(), DType::f32);
  for (const DType type : {DType::f64, DType::i32, DType::boolean, DType::q4_0, DType::q6_k})
    EXPECT_THROW(model.make_state(type), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
