// SPDX-License-Identifier: Apache-2.0
// What a trace sink receives, and that tracing changes nothing.
#include "qkv/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/tiny_models.h"
#include "qkv/inspect.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

Model disturbed(const ModelConfig& c, DType dtype = DType::f32) {
  Model model(c, 3, dtype);
  if (dtype == DType::f64)
    test::disturb<double>(model, 0.3, 4);
  else
    test::disturb<float>(model, 0.3, 4);
  return model;
}

double largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (std::int64_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a.data<float>()[i]) - b.data<float>()[i]);
    largest = difference > largest || std::isnan(difference) ? difference : largest;
  }
  return largest;
}

float at(const Tensor& t, std::int64_t a, std::int64_t b, std::int64_t c) {
  return t.data<float>()[(a * t.shape()[1] + b) * t.shape()[2] + c];
}

// Requests a list of sites and records only their names.
struct Onlooker : TraceSink {
  std::vector<TraceSite> sites;
  std::vector<std::string> seen;
  bool wants(TraceSite site, std::int64_t) const override {
    return std::find(sites.begin(), sites.end(), site) != sites.end();
  }
  void visit(const Traced& t) override { seen.push_back(hook_name(t.site, t.layer)); }
};

TEST(Trace, LogitsMatchTheFusedPathUpToRounding) {
  for (const auto& [name, c] : test::models_of_many_shapes()) {
    SCOPED_TRACE(name);
    Model model = disturbed(c);
    const test::Tokens t = test::random_tokens(c, 1, c.ctx_len, 5);
    const Tensor fused = model.logits(t);
    TraceRecorder recorder(c.n_layer);
    const Tensor traced = model.logits(t, &recorder);
    double largest = 0;  // logit
    for (std::int64_t i = 0; i < fused.size(); ++i) largest = std::max(largest, std::abs(double{fused.data()[i]}));
    EXPECT_LT(largest_difference(fused, traced), std::max(1e-5, 2e-6 * largest));
    // Without the score matrices, attention takes its usual path: the same bits, and the same z up to rounding.
    TraceRecorder light(c.n_layer, {TraceSite::z, TraceSite::q, TraceSite::resid_post});
    EXPECT_EQ(largest_difference(fused, model.logits(t, &light)), 0);
    for (std::size_t l = 0; l < light.layers.size(); ++l)
      EXPECT_LT(largest_difference(light.layers[l].z, recorder.layers[l].z), 1e-5);
  }
}

const Tensor* parameter(const Model& model, ParameterRole role, std::int64_t layer) {
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    if (model.infos()[i].role == role && model.infos()[i].layer == layer) return &model.parameters()[i];
  return nullptr;
}

// Scores, pattern and z of one query of a layer.
void expect_query(const Model& model, std::int64_t layer, const TraceLayer& a, std::int64_t h, std::int64_t i) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const LayerConfig& c = model.config().layer(layer);
  const bool rotary = c.positions == Positions::rotary;
  const Tensor &q = rotary ? a.rot_q : a.q, &k = rotary ? a.rot_k : a.k;
  const std::int64_t n = a.q.shape()[0], group = c.n_head / c.n_kv_head;
  const auto scale = static_cast<float>(c.attention_scale != 0 ? c.attention_scale : 1 / std::sqrt(c.head_dim));
  const double slope = c.alibi ? alibi_slopes(c.n_head)[static_cast<std::size_t>(h)] : 0;
  const Tensor* sinks = parameter(model, ParameterRole::sinks, layer);
  double denominator = sinks ? std::exp(sinks->data<float>()[h]) : 0, sum = 0;
  const auto readable = [&](std::int64_t j) { return j <= i && (c.window_left < 0 || j >= i - c.window_left); };
  for (std::int64_t j = 0; j < n; ++j) {
    double dot = 0;
    for (std::int64_t d = 0; d < c.head_dim; ++d) dot += double{at(q, i, h, d)} * at(k, j, h / group, d);
    EXPECT_NEAR(at(a.products, h, i, j), dot, 1e-4 * (1 + std::abs(dot)));
    EXPECT_EQ(at(a.scaled, h, i, j), at(a.products, h, i, j) * scale);
    double score = at(a.scaled, h, i, j);
    if (c.softcap != 0) score = c.softcap * std::tanh(score / c.softcap);
    score -= slope * std::abs(static_cast<double>(i - j));
    if (readable(j)) {
      const bool as_scaled = c.softcap == 0 && !c.alibi;
      EXPECT_NEAR(at(a.scores, h, i, j), score, as_scaled ? 0 : 1e-5 * (1 + std::abs(score)));
      denominator += std::exp(score);
    } else {
      EXPECT_EQ(at(a.scores, h, i, j), -kInf);
      EXPECT_EQ(at(a.pattern, h, i, j), 0);
    }
  }
  for (std::int64_t j = 0; j < n; ++j) {
    if (readable(j)) {
      EXPECT_NEAR(at(a.pattern, h, i, j), std::exp(at(a.scores, h, i, j)) / denominator, 1e-5);
    }
    sum += at(a.pattern, h, i, j);
  }
  if (!sinks) {
    EXPECT_NEAR(sum, 1, 1e-5);
  } else {
    EXPECT_LT(sum, 1);
  }
  for (std::int64_t d = 0; d < c.v_head_dim; ++d) {
    double mixed = 0;
    for (std::int64_t j = 0; j <= i; ++j) mixed += double{at(a.pattern, h, i, j)} * at(a.v, j, h / group, d);
    EXPECT_NEAR(at(a.z, i, h, d), mixed, 1e-5 * (1 + std::abs(mixed)));
  }
}

double activation_of(Activation kind, double u) {
  switch (kind) {
    case Activation::relu:
      return std::fmax(u, 0);
    case Activation::relu2:
      return std::fmax(u, 0) * std::fmax(u, 0);
    case Activation::gelu:
      return u / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (u + 0.044715 * u * u * u)));
    case Activation::gelu_erf:
      return u / 2 * (1 + std::erf(u / std::sqrt(2.0)));
    case Activation::silu:
      return u / (1 + std::exp(-u));
  }
  return 0;
}

void expect_mlp_and_stream(const LayerConfig& c, const TraceLayer& a) {
  const std::int64_t n = a.resid_pre.shape()[0], d_model = a.resid_pre.shape()[1];
  EXPECT_EQ(a.mlp_post.shape(), (Dims{n, c.d_ff}));
  EXPECT_EQ(a.mlp_pre_linear.size() > 0, c.gated);
  for (std::int64_t i = 0; i < n * c.d_ff; ++i) {
    const double up = c.gated ? a.mlp_pre_linear.data<float>()[i] : 1;
    const double expected = activation_of(c.activation, a.mlp_pre.data<float>()[i]) * up;
    const bool exact = c.activation == Activation::relu && !c.gated;
    EXPECT_NEAR(a.mlp_post.data<float>()[i], expected, exact ? 0 : 1e-5 * (1 + std::abs(expected)));
  }
  const bool sequential = c.residual == Residual::sequential;
  EXPECT_EQ(a.resid_mid.size() > 0, sequential);
  for (std::int64_t i = 0; i < n * d_model; ++i) {
    const auto value = [i](const Tensor& tensor) { return tensor.data<float>()[i]; };
    if (sequential) {
      EXPECT_EQ(value(a.resid_mid), value(a.resid_pre) + value(a.attn_out));
      EXPECT_EQ(value(a.resid_post), value(a.resid_mid) + value(a.mlp_out));
    } else {
      EXPECT_EQ(value(a.resid_post), value(a.resid_pre) + (value(a.attn_out) + value(a.mlp_out)));
    }
  }
}

TEST(Trace, EachActivationFollowsFromTheOnesBefore) {
  for (const auto& [name, c] : test::models_of_many_shapes()) {
    SCOPED_TRACE(name);
    Model model = disturbed(c);
    const test::Tokens t = test::random_tokens(c, 1, c.ctx_len, 6);
    const Trace trace = trace_text(model, t.tokens);
    ASSERT_EQ(trace.layers.size(), static_cast<std::size_t>(c.n_layer));
    const std::int64_t n = c.ctx_len;
    for (std::size_t l = 0; l < trace.layers.size(); ++l) {
      const TraceLayer& a = trace.layers[l];
      const LayerConfig& layer = c.layer(static_cast<std::int64_t>(l));
      EXPECT_EQ(a.rot_q.size() > 0, layer.positions == Positions::rotary);
      ASSERT_EQ(a.q.shape(), (Dims{n, layer.n_head, layer.head_dim}));
      ASSERT_EQ(a.k.shape(), (Dims{n, layer.n_kv_head, layer.head_dim}));
      ASSERT_EQ(a.v.shape(), (Dims{n, layer.n_kv_head, layer.v_head_dim}));
      ASSERT_EQ(a.z.shape(), (Dims{n, layer.n_head, layer.v_head_dim}));
      for (const Tensor* matrix : {&a.products, &a.scaled, &a.scores, &a.pattern})
        ASSERT_EQ(matrix->shape(), (Dims{layer.n_head, n, n}));
      for (std::int64_t h = 0; h < layer.n_head; ++h)
        for (std::int64_t i = 0; i < n; ++i) expect_query(model, static_cast<std::int64_t>(l), a, h, i);
      expect_mlp_and_stream(layer, a);
      if (l > 0) {
        EXPECT_EQ(largest_difference(a.resid_pre, trace.layers[l - 1].resid_post), 0);
      }
    }
    EXPECT_EQ(largest_difference(trace.logits, model.unembed(trace.layers.back().resid_post.view())), 0)
        << "the same bits";
  }
}

TEST(Trace, RopeRotatesQAndKByPosition) {
  const ModelConfig c = test::tiny_llama();
  Model model = disturbed(c);
  const Trace trace = trace_text(model, test::random_tokens(c, 1, c.ctx_len, 6).tokens);
  const std::vector<double> frequencies = rotary_frequencies(c);
  const std::int64_t half = c.head_dim / 2;
  for (std::int64_t t = 0; t < c.ctx_len; ++t)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * frequencies[static_cast<std::size_t>(i)];
      const Tensor &k = trace.layers[1].k, &rot_k = trace.layers[1].rot_k;
      const double low = at(k, t, 1, i), high = at(k, t, 1, i + half);
      EXPECT_NEAR(at(rot_k, t, 1, i), low * std::cos(angle) - high * std::sin(angle), 1e-5);
      EXPECT_NEAR(at(rot_k, t, 1, i + half), high * std::cos(angle) + low * std::sin(angle), 1e-5);
    }
}

TEST(Trace, TheSameBitsAtAnyNumberOfThreads) {
  const ModelConfig c = test::tiny_llama();
  Model model = disturbed(c);
  const std::vector<std::int32_t> tokens = test::random_tokens(c, 1, c.ctx_len, 6).tokens;
  set_num_threads(1);
  const Trace one = trace_text(model, tokens);
  set_num_threads(3);
  const Trace three = trace_text(model, tokens);
  set_num_threads(0);
  EXPECT_EQ(largest_difference(one.logits, three.logits), 0);
  EXPECT_EQ(largest_difference(one.rollout, three.rollout), 0);
  EXPECT_EQ(largest_difference(one.layers[1].pattern, three.layers[1].pattern), 0);
}

TEST(Trace, Bf16ComputeAndF64Models) {
  const ModelConfig c = test::tiny_gpt2();
  const std::vector<std::int32_t> tokens = test::random_tokens(c, 1, 7, 6).tokens;
  Model wide = disturbed(c, DType::f64), narrow = disturbed(c), model = disturbed(c);
  narrow.set_compute_dtype(DType::bf16);
  const Trace f64 = trace_text(wide, tokens), bf16 = trace_text(narrow, tokens), f32 = trace_text(model, tokens);
  EXPECT_LT(largest_difference(f64.logits, f32.logits), 1e-4);
  EXPECT_LT(largest_difference(f64.layers[1].pattern, f32.layers[1].pattern), 1e-5);
  EXPECT_LT(largest_difference(f64.layers[1].mlp_post, f32.layers[1].mlp_post), 1e-4);
  EXPECT_LT(largest_difference(bf16.layers[1].pattern, f32.layers[1].pattern), 0.05);
  EXPECT_GT(largest_difference(bf16.layers[1].pattern, f32.layers[1].pattern), 0);
  EXPECT_EQ(bf16.layers[0].q.dtype(), DType::f32);
}

TEST(Trace, ShowsRequestedSitesInComputationOrder) {
  const ModelConfig c = test::tiny_andrea();
  Model model(c, 3);
  const test::Tokens t = test::random_tokens(c, 3, 5, 5);
  Onlooker sink;
  for (int i = 0; i < kTraceSites; ++i) sink.sites.push_back(static_cast<TraceSite>(i));
  model.logits(t, &sink);
  EXPECT_THAT(std::vector<std::string>(sink.seen.begin(), sink.seen.begin() + 23),
              testing::ElementsAre("hook_embed", "hook_pos_embed", "embed.ln.hook_scale", "embed.ln.hook_normalized",
                                   "blocks.0.hook_resid_pre", "blocks.0.ln1.hook_scale", "blocks.0.ln1.hook_normalized",
                                   "blocks.0.attn.hook_q", "blocks.0.attn.hook_k", "blocks.0.attn.hook_v",
                                   "blocks.0.attn.products", "blocks.0.attn.scaled", "blocks.0.attn.hook_attn_scores",
                                   "blocks.0.attn.hook_pattern", "blocks.0.attn.hook_z", "blocks.0.hook_attn_out",
                                   "blocks.0.hook_resid_mid", "blocks.0.ln2.hook_scale", "blocks.0.ln2.hook_normalized",
                                   "blocks.0.mlp.hook_pre", "blocks.0.mlp.hook_post", "blocks.0.hook_mlp_out",
                                   "blocks.0.hook_resid_post"));
  EXPECT_EQ(sink.seen.size(), 4U + 2 * 19) << "ANDREA has a norm after the embedding and none before the head";
  EXPECT_EQ(sink.seen[23], "blocks.1.hook_resid_pre");
  Onlooker one;
  one.sites = {TraceSite::z};
  model.logits(t, &one);
  EXPECT_THAT(one.seen, testing::ElementsAre("blocks.0.attn.hook_z", "blocks.1.attn.hook_z"));
}

TEST(Trace, ShowsTheWholeBatchWithPadding) {
  const ModelConfig c = test::tiny_llama();
  Model model = disturbed(c);
  test::Tokens t = test::random_tokens(c, 3, 6, 5);
  t.lengths = {6, 2, 4};
  struct Shapes : TraceSink {
    std::vector<Dims> shapes;
    bool wants(TraceSite site, std::int64_t) const override { return site == TraceSite::pattern; }
    void visit(const Traced& traced) override { shapes.push_back(traced.values.shape); }
  } sink;
  model.logits(t, &sink);
  EXPECT_EQ(sink.shapes, (std::vector<Dims>{{3, 4, 6, 6}, {3, 4, 6, 6}}));
  TraceRecorder recorder(c.n_layer);
  EXPECT_THROW(model.logits(t, &recorder), std::invalid_argument) << "it records a single sequence";
}

TEST(Trace, SinkEditsAffectTheRestOfThePass) {
  const ModelConfig c = test::tiny_gpt2();
  Model model = disturbed(c);
  const test::Tokens t = test::random_tokens(c, 1, 6, 5);
  struct Zero : TraceSink {
    TraceSite site;
    bool wants(TraceSite s, std::int64_t layer) const override { return s == site && layer == 0; }
    void visit(const Traced& traced) override {
      for (std::int64_t i = 0; i < traced.writable.shape[1]; ++i)
        for (std::int64_t j = 0; j < traced.writable.shape[2]; ++j)
          static_cast<float*>(traced.writable.data)[i * traced.writable.strides[1] + j * traced.writable.strides[2]] =
              0;
    }
  } zero;
  // If attention and MLP of layer 0 add nothing, its output is its input.
  struct Both : TraceSink {
    Zero attention, mlp;
    TraceRecorder recorder{2};
    Both() { attention.site = TraceSite::attn_out, mlp.site = TraceSite::mlp_out; }
    bool wants(TraceSite, std::int64_t) const override { return true; }
    void visit(const Traced& traced) override {
      for (Zero* sink : {&attention, &mlp})
        if (sink->wants(traced.site, traced.layer)) sink->visit(traced);
      recorder.visit(traced);
    }
  } both;
  const Tensor before = model.logits(t), after = model.logits(t, &both);
  EXPECT_EQ(largest_difference(both.recorder.layers[0].resid_pre, both.recorder.layers[0].resid_post), 0);
  EXPECT_GT(largest_difference(before, after), 1e-3);
  zero.site = TraceSite::resid_mid;
  struct Empty : TraceSink {
    bool wants(TraceSite s, std::int64_t) const override {
      return s == TraceSite::pattern || s == TraceSite::resid_mid;
    }
    void visit(const Traced& traced) override { EXPECT_FALSE(traced.writable); }
  } empty;
  model.logits(t, &empty);
}

TEST(Trace, SinkExceptionsPropagate) {
  const ModelConfig c = test::tiny_andrea();
  Model model(c, 3);
  const test::Tokens t = test::random_tokens(c, 1, 5, 5);
  const Tensor before = model.logits(t);
  struct Thrower : TraceSink {
    bool wants(TraceSite, std::int64_t layer) const override { return layer == 1; }
    void visit(const Traced&) override { throw std::runtime_error("enough"); }
  } thrower;
  EXPECT_THROW(model.logits(t, &thrower), std::runtime_error);
  EXPECT_EQ(largest_difference(before, model.logits(t)), 0);
}

TEST(TraceText, KnowsItsTokensAndRefusesInvalidInput) {
  ModelConfig c = test::tiny_andrea();
  c.vocab_size = 300;
  Model model(c, 3);
  const std::vector<std::int32_t> tokens{104, 105, 299};
  const Trace trace =
      trace_text(model, Tokenizer::bytes(), tokens, {.sites = {TraceSite::q}, .lens_top = 0, .rollout = false});
  EXPECT_THAT(trace.pieces, testing::ElementsAre("h", "i", "")) << "299 is past the tokenizer's ids";
  EXPECT_EQ(trace.ctx(), 3);
  EXPECT_EQ(trace.layers[0].q.size(), 3 * 16);
  EXPECT_EQ(trace.layers[0].pattern.size(), 0) << "was not requested";
  EXPECT_TRUE(trace.lens.empty());
  EXPECT_THROW(trace_text(model, std::vector<std::int32_t>{}), std::invalid_argument);
  EXPECT_THROW(trace_text(model, std::vector<std::int32_t>{300}), std::invalid_argument);
  EXPECT_THROW(trace_text(model, std::vector<std::int32_t>(13, 1)), std::invalid_argument) << "ctx_len is 12";
  const Trace one = trace_text(model, std::vector<std::int32_t>{7});
  EXPECT_EQ(one.layers[0].pattern.data<float>()[0], 1);
  EXPECT_EQ(one.lens[0].next_prob.data<float>()[0], 0) << "there is no next token";
}

TEST(Unembed, RefusesAnInvalidStream) {
  Model model(test::tiny_andrea(), 3);
  const Tensor good({2, 3, 16}), narrow({2, 15}), wide({2, 16}, DType::f64);
  EXPECT_EQ(model.unembed(good.view()).shape(), (Dims{2, 3, 19}));
  EXPECT_THROW(model.unembed(narrow.view()), std::invalid_argument);
  EXPECT_THROW(model.unembed(wide.view()), std::invalid_argument);
  EXPECT_THROW(model.unembed(ConstView{}), std::invalid_argument);
  EXPECT_THROW(model.unembed(swap_axes(good.view(), 0, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
