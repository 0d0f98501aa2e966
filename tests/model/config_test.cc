// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/model.h"

namespace qkv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Preset, ExactParameterCounts) {
  EXPECT_EQ(parameter_count(preset("andrea-12m")), 12780288);
  EXPECT_EQ(parameter_count(preset("andrea-120m")), 98698752);
  EXPECT_EQ(parameter_count(preset("andrea-480m")), 480513024);
  EXPECT_EQ(parameter_count(preset("gpt2")), 124439808);
  EXPECT_EQ(parameter_count(preset("llama-135m")), 134515008);
  EXPECT_EQ(parameter_count(preset("llama-1m")), 1267072);
  EXPECT_EQ(parameter_count(preset("llama-4m")), 4328640);
  EXPECT_EQ(parameter_count(preset("llama-10m")), 9988800);
  EXPECT_EQ(parameter_count(preset("gpt2-4m")), 4394880);
}

TEST(Preset, EachNameIsThereAndAnUnknownOneListsThem) {
  for (const std::string& name : preset_names()) EXPECT_EQ(preset(name), preset(name).resolved());
  EXPECT_THAT(
      message_of([] { preset("gpt-5"); }),
      AllOf(HasSubstr("llama-1m, llama-4m, llama-10m, llama-135m, gpt2-4m, gpt2, andrea-12m, "), HasSubstr("'gpt-5'")));
}

// Unlike the defaults of qkv train: these apply to values that are missing in a file.
TEST(Preset, TheDefaultsOfMembersStay) {
  const ModelConfig c;
  EXPECT_TRUE(c.embedding_norm && !c.final_norm && !c.tied_head && !c.norm_gain && !c.gated);
  EXPECT_EQ(c.positions, Positions::learned);
  EXPECT_EQ(c.activation, Activation::relu);
}

TEST(Preset, AGatedMlpHasTheParametersOfAnUngatedOne) {
  EXPECT_EQ(gated_d_ff(576), 1536);
  EXPECT_EQ(gated_d_ff(128), 352);
  EXPECT_EQ(gated_d_ff(8), 32);
  for (const std::int64_t d_model : {192, 320, 1024, 4096}) {
    EXPECT_EQ(gated_d_ff(d_model) % 32, 0);
    EXPECT_NEAR(static_cast<double>(3 * gated_d_ff(d_model)), static_cast<double>(8 * d_model), 48);
  }
}

std::vector<std::string> names_of(const ModelConfig& c) {
  std::vector<std::string> names;
  for (const ParameterInfo& info : parameter_infos(c)) {
    names.push_back(info.name + to_string(info.shape) + (info.decays() ? "" : "*"));
  }
  return names;
}

TEST(Parameters, NamesShapesAndOrder) {
  ModelConfig c = test::tiny_andrea();
  c.n_layer = 1;
  EXPECT_THAT(names_of(c), ElementsAre("token_embedding[19, 16]", "position_embedding[12, 16]", "layers.0.wq[16, 16]",
                                       "layers.0.wk[16, 16]", "layers.0.wv[16, 16]", "layers.0.wo[16, 16]",
                                       "layers.0.w_up[16, 64]", "layers.0.w_down[64, 16]", "head[16, 19]"));
  c = test::tiny_llama();
  c.n_layer = 1;
  c.v_head_dim = 3;
  c.qkv_bias = c.output_bias = c.mlp_bias = c.embedding_norm = true;
  c.norm = Norm::layernorm;
  c.norm_bias = true;
  EXPECT_THAT(names_of(c), ElementsAre("token_embedding[19, 16]", "embedding_norm.gain[16]*",
                                       "embedding_norm.bias[16]*", "layers.0.attention_norm.gain[16]*",
                                       "layers.0.attention_norm.bias[16]*", "layers.0.wq[16, 16]", "layers.0.bq[16]*",
                                       "layers.0.wk[16, 8]", "layers.0.bk[8]*", "layers.0.wv[16, 6]", "layers.0.bv[6]*",
                                       "layers.0.wo[12, 16]", "layers.0.bo[16]*", "layers.0.mlp_norm.gain[16]*",
                                       "layers.0.mlp_norm.bias[16]*", "layers.0.w_gate[16, 24]", "layers.0.b_gate[24]*",
                                       "layers.0.w_up[16, 24]", "layers.0.b_up[24]*", "layers.0.w_down[24, 16]",
                                       "layers.0.b_down[16]*", "final_norm.gain[16]*", "final_norm.bias[16]*"));
}

TEST(Config, ImpossibleOnesNameTheMismatch) {
  const auto message = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig c;
    change(c);
    return message_of([&] { c.resolved(); });
  };
  EXPECT_EQ(message([](ModelConfig& c) { c.d_model = 100; }),
            "[model] d_model must be a multiple of n_head unless head_dim is given; found d_model 100 and n_head 6");
  EXPECT_THAT(message([](ModelConfig& c) { c.n_kv_head = 4; }), HasSubstr("n_kv_head; found 6 and 4"));
  EXPECT_THAT(message([](ModelConfig& c) { c.n_layer = 0; }), HasSubstr("n_layer expected 1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.vocab_size = -1; }), HasSubstr("found -1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.ctx_len = std::int64_t{1} << 40; }), HasSubstr("ctx_len"));
  EXPECT_THAT(message([](ModelConfig& c) { c.norm_bias = true; }), HasSubstr("layernorm"));
  EXPECT_THAT(message([](ModelConfig& c) { c.norm_eps = 0; }), HasSubstr("norm_eps"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.positions = Positions::rotary;
                c.head_dim = 5;
              }),
              HasSubstr("an even number of rotated dimensions, head_dim; found 5"));
  // Unused with learned positions, but written to files, which cannot store NaN; and NaN is unequal to itself.
  EXPECT_THAT(message([](ModelConfig& c) { c.rope_theta = std::nan(""); }),
              HasSubstr("rope_theta expected a positive"));
  ModelConfig free;  // head_dim given: d_model need not be a multiple
  free.d_model = 100;
  free.head_dim = 7;
  EXPECT_EQ(free.resolved().v_head_dim, 7);
  EXPECT_EQ(free.resolved().d_ff, 400);
}

TEST(Config, ImpossibleLayersNameTheMismatch) {
  const auto message = [](const std::function<void(ModelConfig&)>& change) {
    ModelConfig c = test::tiny_llama();
    change(c);
    return message_of([&] { c.resolved(); });
  };
  EXPECT_THAT(message([](ModelConfig& c) { c.window_left = -2; }), HasSubstr("window_left expected -1 or more"));
  EXPECT_THAT(message([](ModelConfig& c) { c.softcap = -1; }), HasSubstr("softcap expected a positive"));
  EXPECT_THAT(message([](ModelConfig& c) { c.attention_scale = std::nan(""); }), HasSubstr("attention_scale"));
  EXPECT_THAT(message([](ModelConfig& c) { c.residual_scale = 0; }), HasSubstr("residual_scale"));
  EXPECT_THAT(message([](ModelConfig& c) { c.embedding_scale = 0; }), HasSubstr("embedding_scale"));
  EXPECT_THAT(message([](ModelConfig& c) { c.logit_scale = -1; }), HasSubstr("logit_scale"));
  EXPECT_THAT(message([](ModelConfig& c) { c.logit_softcap = HUGE_VAL; }), HasSubstr("logit_softcap"));
  EXPECT_THAT(message([](ModelConfig& c) { c.rope_share = 0; }), HasSubstr("rope_share expected"));
  EXPECT_THAT(message([](ModelConfig& c) { c.rope_share = 0.25; }), HasSubstr("head_dim * rope_share; found 1"));
  EXPECT_THAT(message([](ModelConfig& c) { c.rope_scaling.attention_factor = 0; }), HasSubstr("attention_factor"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.positions = Positions::none;
                c.rope_share = 0.5;
              }),
              HasSubstr("require rotary positions; found none"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.norm_gain_offset = true;
                c.norm_gain = false;
              }),
              HasSubstr("norm_gain_offset requires norm_gain"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.residual = Residual::parallel_shared_norm;
                c.norm_place = NormPlace::both;
              }),
              HasSubstr("parallel_shared_norm requires norm_place before"));
  EXPECT_THAT(message([](ModelConfig& c) { c.layers.assign(3, c); }), HasSubstr("each of the 2 layers; found 3"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.layers.assign(2, c);
                c.layers[1].positions = Positions::learned;
              }),
              HasSubstr("require learned positions in the model"));
  EXPECT_THAT(message([](ModelConfig& c) {
                c.layers.assign(2, c);
                c.layers[1].n_kv_head = 3;
              }),
              HasSubstr("n_kv_head; found 4 and 3"));
}

TEST(Config, EqualLayersAreNotListed) {
  ModelConfig c = test::tiny_llama();
  c.layers.assign(2, c);
  EXPECT_EQ(c.resolved(), test::tiny_llama());
  c.layers[1].d_ff = 0;  // derived: 4 * d_model, different from the 24 of layer 0
  EXPECT_EQ(c.resolved().layer(1).d_ff, 64);
  EXPECT_EQ(c.resolved().layer(0).d_ff, 24);
}

// R45 of the reports: sizes are counted in 64 bits and refused before they overflow.
TEST(Config, SizesAreCountedIn64Bits) {
  EXPECT_EQ(element_count(Dims{42, 1024, 50304}), 2163474432);
  ModelConfig c;
  c.vocab_size = 2000000000;
  c.d_model = 2000000000;
  c.n_head = 1;
  c.n_layer = 3;
  EXPECT_THROW(parameter_count(c), std::invalid_argument);
  // 2^31 logits and more are accepted, more than 2^63 are refused.
  Model model(test::tiny_andrea());
  Batch batch;
  batch.batch = std::int64_t{1} << 60;
  batch.ctx = 12;
  EXPECT_THROW(model.logits(batch), std::invalid_argument);
  EXPECT_THROW(model.loss(batch), std::invalid_argument);
}

TEST(Model, RefusesBadBatches) {
  const ModelConfig c = test::tiny_andrea();
  Model model(c);
  const auto message = [&](const std::function<void(test::Tokens&)>& change) {
    test::Tokens t = test::random_tokens(c, 2, 5, 1);
    change(t);
    return message_of([&] { model.loss(t); });
  };
  EXPECT_THAT(message([](test::Tokens& t) { t.tokens[3] = 19; }), HasSubstr("token expected 0 ... 18; found 19"));
  EXPECT_THAT(message([](test::Tokens& t) { t.tokens[3] = -1; }), HasSubstr("found -1"));
  EXPECT_THAT(message([](test::Tokens& t) { t.targets[3] = -2; }), HasSubstr("target expected -1 ... 18; found -2"));
  EXPECT_THAT(message([](test::Tokens& t) { t.lengths = {5, 6}; }), HasSubstr("lengths expected 0 ... 5; found 6"));
  EXPECT_THAT(message([](test::Tokens& t) { t.lengths = {5}; }), HasSubstr("lengths expected 2 elements; found 1"));
  EXPECT_THAT(message([](test::Tokens& t) { t.targets.pop_back(); }), HasSubstr("targets expected 10"));
  EXPECT_THAT(message([](test::Tokens& t) {
                t.ctx = 13;
                t.batch = 1;
              }),
              HasSubstr("ctx expected at most ctx_len = 12; found 13"));
  EXPECT_THROW(Model(c, 0, DType::bf16), std::invalid_argument);
  std::vector<Tensor> gradients = model.zeros_like_parameters();
  gradients.pop_back();
  const test::Tokens tokens = test::random_tokens(c, 2, 5, 1);
  EXPECT_THAT(message_of([&] { model.loss_and_gradients(tokens, 1, gradients); }), HasSubstr("[gradients]"));
}

TEST(Model, ParametersComeFromTheSeed) {
  const ModelConfig c = test::tiny_gpt2();
  const Model a(c, 7), b(c, 7), other(c, 8);
  for (std::size_t p = 0; p < a.parameters().size(); ++p) {
    const Tensor &x = a.parameters()[p], &y = b.parameters()[p], &z = other.parameters()[p];
    const ParameterInfo& info = a.infos()[p];
    double squares = 0;
    bool differs = false;
    for (std::int64_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(x.data()[i], y.data()[i]);
      differs |= x.data()[i] != z.data()[i];
      squares += double{x.data()[i]} * x.data()[i];
      if (info.name.ends_with(".gain")) {
        ASSERT_EQ(x.data()[i], 1.0f);
      }
      if (!info.decays() && !info.name.ends_with(".gain")) {
        ASSERT_EQ(x.data()[i], 0.0f);
      }
    }
    EXPECT_EQ(differs, info.decays()) << info.name;
    const bool residual = info.name.ends_with(".wo") || info.name.ends_with(".w_down");
    if (!info.decays()) continue;
    // 2 layers: residual projections are initialised half as large
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(x.size())), residual ? 0.01 : 0.02, residual ? 0.002 : 0.004);
  }
}

}  // namespace
}  // namespace qkv
