// SPDX-License-Identifier: Apache-2.0
// Models small enough for central differences, and batches for them.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
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

// Random numbers, one after the other.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed, 99) {}
  std::int64_t pick(std::uint64_t n) { return static_cast<std::int64_t>(random_.below(next_++, n)); }  // 0 ... n - 1
  bool yes() { return pick(2) != 0; }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

// The less common options of attention and positions, each in about half of the configurations.
inline void random_attention(Draws& draw, LayerConfig& c) {
  c.window_left = draw.yes() ? draw.pick(5) : -1;
  c.attention_scale = draw.yes() ? 0.3 : 0;
  c.softcap = draw.yes() ? 1.5 : 0;
  c.alibi = draw.yes();
  c.sinks = draw.yes();
  c.qk_norm = static_cast<QkNorm>(draw.pick(3));
  c.qkv_bias = draw.yes();
  c.output_bias = draw.yes();
  c.rope_share = 1;
  c.rope_scaling = {};
  if (draw.pick(3) == 0 && c.positions != Positions::learned) c.positions = Positions::none;
  if (c.positions != Positions::rotary) return;
  c.rope_theta = draw.yes() ? 10000 : 50;
  if (draw.yes() && c.head_dim >= 4) c.rope_share = 2.0 / static_cast<double>(c.head_dim);  // one pair
  if (draw.yes()) c.rope_scaling.attention_factor = 1.25;
}

inline void random_blocks(Draws& draw, LayerConfig& c) {
  c.activation = static_cast<Activation>(draw.pick(5));
  c.gated = draw.yes();
  c.norm_place = static_cast<NormPlace>(draw.pick(3));
  c.norm_gain_offset = c.norm_gain && draw.yes();
  c.residual = static_cast<Residual>(draw.pick(3));
  if (c.residual == Residual::parallel_shared_norm) c.norm_place = NormPlace::before;
  c.residual_scale = draw.yes() ? 0.6 : 1;
}

// A random combination of all options, from the seed; in every second model the layers differ.
inline ModelConfig random_config(std::uint64_t seed) {
  Draws draw(seed);
  ModelConfig c;
  c.n_layer = 1 + draw.pick(2);
  c.n_kv_head = 1 + draw.pick(3);
  c.n_head = c.n_kv_head * (1 + draw.pick(3));
  c.head_dim = 2 * (1 + draw.pick(5));
  c.v_head_dim = 1 + draw.pick(9);
  c.d_model = 1 + draw.pick(13);
  c.d_ff = 1 + draw.pick(20);
  c.vocab_size = 2 + draw.pick(15);
  c.ctx_len = 1 + draw.pick(9);
  c.norm = draw.yes() ? Norm::layernorm : Norm::rmsnorm;
  c.norm_gain = draw.yes();
  c.norm_bias = c.norm == Norm::layernorm && draw.yes();
  c.norm_eps = draw.yes() ? 1e-5 : 0.1;
  c.embedding_norm = draw.yes();
  c.final_norm = draw.yes();
  c.positions = draw.yes() ? Positions::rotary : Positions::learned;
  c.mlp_bias = draw.yes();
  c.tied_head = draw.yes();
  c.embedding_scale = draw.yes() ? 1.5 : 1;
  c.logit_scale = draw.yes() ? 0.7 : 1;
  c.logit_softcap = draw.yes() ? 2 : 0;
  random_attention(draw, c);
  random_blocks(draw, c);
  if (!draw.yes()) return c.resolved();
  c.n_layer = 2 + draw.pick(2);
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    LayerConfig one = c;
    one.n_kv_head = 1 + draw.pick(3);
    one.n_head = one.n_kv_head * (1 + draw.pick(3));
    one.head_dim = 2 * (1 + draw.pick(5));
    one.v_head_dim = 1 + draw.pick(9);
    one.d_ff = 1 + draw.pick(20);
    one.positions = draw.yes() ? Positions::rotary : c.positions;
    random_attention(draw, one);
    random_blocks(draw, one);
    c.layers.push_back(one);
  }
  return c.resolved();
}

// One of the tiny models with one option changed, for each value of each option.
inline std::vector<NamedConfig> models_of_each_option() {
  std::vector<NamedConfig> list;
  const auto add = [&](const char* name, const ModelConfig& base, const auto& change) {
    ModelConfig c = base;
    change(c);
    list.push_back({name, c.resolved()});
  };
  const ModelConfig andrea = tiny_andrea(), gpt2 = tiny_gpt2(), llama = tiny_llama();
  add("window", llama, [](ModelConfig& c) { c.window_left = 3; });
  add("window of only the token itself", andrea, [](ModelConfig& c) { c.window_left = 0; });
  add("attention_scale", llama, [](ModelConfig& c) { c.attention_scale = 0.9; });
  add("softcap", llama, [](ModelConfig& c) { c.softcap = 0.7; });
  add("alibi", andrea, [](ModelConfig& c) {
    c.alibi = true;
    c.positions = Positions::none;
  });
  add("sinks", llama, [](ModelConfig& c) { c.sinks = true; });
  add("sinks, window and softcap", gpt2, [](ModelConfig& c) {
    c.sinks = true;
    c.window_left = 2;
    c.softcap = 3;
  });
  add("qk_norm per head", llama, [](ModelConfig& c) { c.qk_norm = QkNorm::per_head; });
  add("qk_norm over all heads", llama, [](ModelConfig& c) { c.qk_norm = QkNorm::all_heads; });
  add("qk_norm with gain 1 + w", llama, [](ModelConfig& c) {
    c.qk_norm = QkNorm::per_head;
    c.norm_gain_offset = true;
  });
  add("qkv_bias alone", llama, [](ModelConfig& c) { c.qkv_bias = true; });
  add("output_bias alone", llama, [](ModelConfig& c) { c.output_bias = true; });
  add("rope_share", llama, [](ModelConfig& c) { c.rope_share = 0.5; });
  add("attention_factor", llama, [](ModelConfig& c) { c.rope_scaling.attention_factor = 1.2; });
  add("no positions", llama, [](ModelConfig& c) { c.positions = Positions::none; });
  constexpr const char* kActivations[] = {"relu", "relu2", "gelu", "silu", "gelu_erf"};
  for (std::size_t i = 0; i < std::size(kActivations); ++i) {
    add(kActivations[i], andrea, [i](ModelConfig& c) { c.activation = static_cast<Activation>(i); });
    add((std::string("gated ") + kActivations[i]).c_str(), andrea, [i](ModelConfig& c) {
      c.activation = static_cast<Activation>(i);
      c.gated = c.mlp_bias = true;
    });
  }
  add("norms after", llama, [](ModelConfig& c) { c.norm_place = NormPlace::after; });
  add("norms before and after", llama, [](ModelConfig& c) { c.norm_place = NormPlace::both; });
  add("layernorms before and after", gpt2, [](ModelConfig& c) { c.norm_place = NormPlace::both; });
  add("norms without gain before and after", andrea, [](ModelConfig& c) { c.norm_place = NormPlace::both; });
  add("norm_gain_offset", llama, [](ModelConfig& c) { c.norm_gain_offset = true; });
  add("parallel", gpt2, [](ModelConfig& c) { c.residual = Residual::parallel; });
  add("parallel, norms before and after", llama, [](ModelConfig& c) {
    c.residual = Residual::parallel;
    c.norm_place = NormPlace::both;
  });
  add("parallel, norms after", llama, [](ModelConfig& c) {
    c.residual = Residual::parallel;
    c.norm_place = NormPlace::after;
  });
  add("parallel_shared_norm", gpt2, [](ModelConfig& c) { c.residual = Residual::parallel_shared_norm; });
  add("residual_scale", llama, [](ModelConfig& c) { c.residual_scale = 0.5; });
  add("embedding_scale", llama, [](ModelConfig& c) { c.embedding_scale = 4; });
  add("logit_scale", llama, [](ModelConfig& c) { c.logit_scale = 0.25; });
  add("logit_softcap", gpt2, [](ModelConfig& c) { c.logit_softcap = 1.5; });
  add("logit_scale and logit_softcap", andrea, [](ModelConfig& c) {
    c.logit_scale = 2;
    c.logit_softcap = 1.5;
  });
  // Like Gemma 3: a layer with a window and its own rotary base, then one with full attention; other sizes differ as
  // well.
  add("layers that differ", llama, [](ModelConfig& c) {
    c.layers.assign(2, c);
    c.layers[0].window_left = 2;
    c.layers[0].rope_theta = 50;
    c.layers[0].n_kv_head = 1;
    c.layers[0].d_ff = 40;
    c.layers[0].v_head_dim = 6;
    c.layers[1].gated = false;
    c.layers[1].norm_place = NormPlace::both;
  });
  add("one layer without positions", llama, [](ModelConfig& c) {
    c.layers.assign(2, c);
    c.layers[1].positions = Positions::none;
    c.layers[1].sinks = c.layers[1].output_bias = true;
  });
  return list;
}

// Three models that together have every option, in layers that differ.
inline std::vector<NamedConfig> models_of_many_options() {
  ModelConfig window_and_full = tiny_llama();
  window_and_full.norm_place = NormPlace::both;
  window_and_full.norm_gain_offset = true;
  window_and_full.qk_norm = QkNorm::per_head;
  window_and_full.activation = Activation::gelu;
  window_and_full.attention_scale = 0.2;
  window_and_full.softcap = 2;
  window_and_full.embedding_scale = 4;
  window_and_full.logit_softcap = 3;
  window_and_full.layers.assign(2, window_and_full);
  window_and_full.layers[0].window_left = 5;
  window_and_full.layers[0].rope_theta = 100;
  window_and_full.layers[0].n_kv_head = 1;
  window_and_full.layers[0].d_ff = 40;
  window_and_full.layers[1].softcap = 0;

  ModelConfig parallel = tiny_gpt2();
  parallel.positions = Positions::rotary;
  parallel.rope_share = 0.5;
  parallel.rope_scaling.attention_factor = 1.1;
  parallel.activation = Activation::gelu_erf;
  parallel.residual = Residual::parallel_shared_norm;
  parallel.layers.assign(2, parallel);
  parallel.layers[1].residual = Residual::parallel;
  parallel.layers[1].norm_place = NormPlace::both;
  parallel.layers[1].output_bias = false;
  parallel.layers[1].gated = true;

  ModelConfig sinks = tiny_andrea();
  sinks.norm_gain = true;
  sinks.norm_place = NormPlace::after;
  sinks.positions = Positions::none;
  sinks.sinks = sinks.qkv_bias = true;
  sinks.qk_norm = QkNorm::all_heads;
  sinks.residual_scale = 0.7;
  sinks.logit_scale = 0.5;
  sinks.gated = true;
  sinks.layers.assign(2, sinks);
  sinks.layers[0].window_left = 9;
  sinks.layers[1].alibi = true;
  sinks.layers[1].activation = Activation::relu2;
  return {{"window and full", window_and_full.resolved()},
          {"parallel", parallel.resolved()},
          {"sinks and alibi", sinks.resolved()}};
}

// Changes the sizes of every layer.
template <class Change>
void change_layers(ModelConfig& c, const Change& change) {
  change(static_cast<LayerConfig&>(c));
  for (LayerConfig& one : c.layers) change(one);
}

// The tiny models, one per option, and 24 random ones.
inline std::vector<NamedConfig> models_of_many_shapes() {
  std::vector<NamedConfig> list = tiny_models();
  for (NamedConfig& one : models_of_each_option()) list.push_back(std::move(one));
  for (NamedConfig& one : models_of_many_options()) list.push_back(std::move(one));
  for (std::uint64_t seed = 1; seed <= 24; ++seed)
    list.push_back({"drawn " + std::to_string(seed), random_config(seed)});
  return list;
}

// The elements of a Batch.
struct Tokens {
  std::int64_t batch = 0, ctx = 0;
  std::vector<std::int32_t> tokens, targets;  // [batch, ctx]
  std::vector<std::int64_t> lengths;          // [batch] or empty

  operator Batch() const { return {batch, ctx, tokens, targets, lengths}; }
  // Only sequence b, cut to its length.
  Tokens sequence(std::int64_t b) const {
    Tokens one;
    one.batch = 1;
    one.ctx = lengths.empty() ? ctx : lengths[static_cast<std::size_t>(b)];
    one.tokens.assign(tokens.begin() + b * ctx, tokens.begin() + b * ctx + one.ctx);
    one.targets.assign(targets.begin() + b * ctx, targets.begin() + b * ctx + one.ctx);
    return one;
  }
  // `count` sequences from `first` on; a single one is cut to its length.
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
inline Tokens random_tokens(const ModelConfig& c, std::int64_t batch, std::int64_t ctx, std::uint64_t seed) {
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

// Makes every parameter matter: adds normal numbers of the given deviation to all of them, including gains and biases.
template <class T>
void disturb(Model& model, double deviation, std::uint64_t seed) {
  const Model::ParameterAccess parameters = model.change_parameters();
  for (std::size_t p = 0; p < parameters->size(); ++p) {
    const Random random(seed, p);
    Tensor& tensor = parameters[p];
    for (std::int64_t i = 0; i < tensor.size(); ++i)
      tensor.data<T>()[i] += static_cast<T>(deviation * random.normal(static_cast<std::uint64_t>(i)));
  }
}

}  // namespace qkv::test
