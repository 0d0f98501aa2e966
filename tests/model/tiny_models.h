// SPDX-License-Identifier: Apache-2.0
// Models small enough for central differences, and batches for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/random.h"
#include "qkv/model.h"

namespace qkv::test {

inline ModelConfig tiny_andrea() {
  ModelConfig c;
  c.n_layer = 2;
  c.n_head = 4;
  c.d_model = 16;
  c.vocab_size = 19;
  c.ctx_len = 12;
  return c.resolved();
}

inline ModelConfig tiny_gpt2() {
  ModelConfig c = tiny_andrea();
  c.norm = Norm::layernorm;
  c.norm_gain = c.norm_bias = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::gelu;
  c.qkv_bias = c.output_bias = c.mlp_bias = c.tied_head = true;
  return c.resolved();
}

inline ModelConfig tiny_llama() {
  ModelConfig c = tiny_andrea();
  c.n_kv_head = 2;
  c.d_ff = 24;
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.activation = Activation::silu;
  c.gated = true;
  c.positions = Positions::rotary;
  c.tied_head = true;
  return c.resolved();
}

struct NamedConfig {
  std::string name;
  ModelConfig config;
};
inline std::vector<NamedConfig> tiny_models() {
  return {{"andrea", tiny_andrea()}, {"gpt2", tiny_gpt2()}, {"llama", tiny_llama()}};
}

// Any combination of all options, drawn from the seed.
inline ModelConfig drawn_config(std::uint64_t seed) {
  const Random random(seed, 99);
  std::uint64_t i = 0;
  const auto pick = [&](std::uint64_t n) { return static_cast<std::int64_t>(random.below(i++, n)); };
  ModelConfig c;
  c.n_layer = 1 + pick(2);
  c.n_kv_head = 1 + pick(3);
  c.n_head = c.n_kv_head * (1 + pick(3));
  c.head_dim = 2 * (1 + pick(5));
  c.v_head_dim = 1 + pick(9);
  c.d_model = 1 + pick(13);
  c.d_ff = 1 + pick(20);
  c.vocab_size = 2 + pick(15);
  c.ctx_len = 1 + pick(9);
  c.norm = pick(2) ? Norm::layernorm : Norm::rmsnorm;
  c.norm_gain = pick(2);
  c.norm_bias = c.norm == Norm::layernorm && pick(2);
  c.norm_eps = pick(2) ? 1e-5 : 0.1;
  c.embedding_norm = pick(2);
  c.final_norm = pick(2);
  c.activation = static_cast<Activation>(pick(4));
  c.positions = pick(2) ? Positions::rotary : Positions::learned;
  c.rope_theta = pick(2) ? 10000 : 50;
  c.qkv_bias = c.output_bias = pick(2);
  c.mlp_bias = pick(2);
  c.tied_head = pick(2);
  return c.resolved();
}

// The tiny ones and twelve drawn ones.
inline std::vector<NamedConfig> models_of_many_shapes() {
  std::vector<NamedConfig> list = tiny_models();
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    list.push_back({"drawn " + std::to_string(seed), drawn_config(seed)});
  return list;
}

// The elements of a Batch.
struct Tokens {
  std::int64_t batch = 0, ctx = 0;
  std::vector<std::int32_t> tokens, targets;  // [batch, ctx]
  std::vector<std::int64_t> lengths;          // [batch] or empty

  operator Batch() const { return {batch, ctx, tokens, targets, lengths}; }
  // Sequence b alone, cut to its length.
  Tokens sequence(std::int64_t b) const {
    Tokens one;
    one.batch = 1;
    one.ctx = lengths.empty() ? ctx : lengths[static_cast<std::size_t>(b)];
    one.tokens.assign(tokens.begin() + b * ctx, tokens.begin() + b * ctx + one.ctx);
    one.targets.assign(targets.begin() + b * ctx, targets.begin() + b * ctx + one.ctx);
    return one;
  }
  // `count` sequences from `first` on; one alone is cut to its length.
  Tokens sequences(std::int64_t first, std::int64_t count) const {
    if (count == 1) return sequence(first);
    Tokens part{count, ctx, {}, {}, {}};
    part.tokens.assign(tokens.begin() + first * ctx, tokens.begin() + (first + count) * ctx);
    part.targets.assign(targets.begin() + first * ctx, targets.begin() + (first + count) * ctx);
    if (!lengths.empty()) part.lengths.assign(lengths.begin() + first, lengths.begin() + first + count);
    return part;
  }
};

// Random tokens; about one target in eight is ignored.
inline Tokens drawn_tokens(const ModelConfig& c, std::int64_t batch, std::int64_t ctx, std::uint64_t seed) {
  const Random random(seed, 5);
  Tokens t{batch, ctx, {}, {}, {}};
  const auto vocab = static_cast<std::uint64_t>(c.vocab_size);
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(batch * ctx); ++i) {
    t.tokens.push_back(static_cast<std::int32_t>(random.below(2 * i, vocab)));
    const auto target = static_cast<std::int32_t>(random.below(2 * i + 1, vocab));
    t.targets.push_back(random.below(2 * i + 1, 8000) % 8 == 0 ? -1 : target);
  }
  return t;
}

// Makes every parameter matter: normal numbers of the given deviation are added to all of them, gains and biases too.
template <class T>
void disturb(Model& model, double deviation, std::uint64_t seed) {
  for (std::size_t p = 0; p < model.parameters().size(); ++p) {
    const Random random(seed, p);
    Tensor& tensor = model.parameters()[p];
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.data<T>()[i] += static_cast<T>(deviation * random.normal(static_cast<std::uint64_t>(i)));
  }
}

}  // namespace qkv::test
