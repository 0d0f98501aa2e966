// SPDX-License-Identifier: Apache-2.0
// Analyses of a trace: logit lens, rollout, head scores, effects of heads, arrays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>

#include "model/tiny_models.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::ElementsAreArray;

Tensor f32(const Dims& shape, const std::vector<float>& values) {
  Tensor t(shape);
  std::copy(values.begin(), values.end(), t.data<float>());
  return t;
}

template <class T>
std::vector<T> values_of(const Tensor& t) {
  return {t.data<T>(), t.data<T>() + t.size()};
}

TEST(LensStage, HandWorked) {
  // softmax of ln 1, ln 2, ln 1 is 1/4, 1/2, 1/4; of 0, 0, 0 is 1/3 each.
  const float ln2 = std::log(2.0F);
  const Tensor logits = f32({2, 3}, {0, ln2, 0, 5, 5, 5});
  const std::vector<std::int32_t> next{2}, last{1, 0};
  const LensStage s = lens_stage(logits, 2, next, last);
  EXPECT_THAT(values_of<std::int32_t>(s.top_ids), ElementsAre(1, 0, 0, 1)) << "ties to the lowest id";
  EXPECT_NEAR(s.top_probs.data<float>()[0], 0.5, 1e-6);
  EXPECT_NEAR(s.top_probs.data<float>()[1], 0.25, 1e-6);
  EXPECT_NEAR(s.next_prob.data<float>()[0], 0.25, 1e-6);
  EXPECT_EQ(s.next_prob.data<float>()[1], 0);
  EXPECT_NEAR(s.last_prob.data<float>()[0], 0.5, 1e-6);
  EXPECT_NEAR(s.last_prob.data<float>()[1], 1.0 / 3, 1e-6);
  EXPECT_NEAR(s.entropy.data<float>()[0], 1.5 * std::log(2.0), 1e-6);
  EXPECT_NEAR(s.entropy.data<float>()[1], std::log(3.0), 1e-6);
  EXPECT_EQ(lens_stage(logits, 9, next, last).top_ids.shape(), (Dims{2, 3})) << "cut to the vocabulary";
  EXPECT_THROW(lens_stage(logits, 0, next, last), std::invalid_argument);
  EXPECT_THROW(lens_stage(logits, 2, {}, last), std::invalid_argument);
  EXPECT_THROW(lens_stage(logits, 2, std::vector<std::int32_t>{3}, last), std::invalid_argument);
  EXPECT_THROW(lens_stage(f32({3}, {0, 0, 0}), 2, next, last), std::invalid_argument);
}

TEST(PatternFacts, HandWorked) {
  const std::vector<float> row{0.5F, 0, 0.25F, 0.25F};
  const PatternFacts f = pattern_facts(row);
  EXPECT_NEAR(f.entropy, 1.5 * std::log(2.0), 1e-12) << "a weight of 0 contributes nothing";
  EXPECT_EQ(f.first, 0.5);
  EXPECT_EQ(f.previous, 0.25);
  EXPECT_EQ(f.own, 0.25);
  EXPECT_EQ(pattern_facts(std::vector<float>{1}).previous, 0) << "query 0 has no previous token";
  // Of 3 queries only the last counts; of 2 both count.
  EXPECT_EQ(mean_pattern_facts(std::vector<float>{1, 0, 0, 1, 0, 0, 0.25F, 0.5F, 0.25F}, 3).previous, 0.5);
  EXPECT_EQ(mean_pattern_facts(std::vector<float>{1, 0, 0.5F, 0.5F}, 2).own, 0.75);
}

TEST(TopKeys, AreSortedWithTiesAndNan) {
  const std::vector<float> row{0.25F, std::nanf(""), 0.5F, 0.25F, 0};
  EXPECT_THAT(top_keys(row, 9), ElementsAre(2, 0, 3, 4, 1));
  EXPECT_THAT(top_keys(row, 2), ElementsAre(2, 0));
}

TEST(AllHeads, ByLayerThenHead) {
  ModelConfig c;
  c.n_layer = 2;
  c.n_head = 1;
  c.d_model = 8;
  c.vocab_size = 9;
  c.ctx_len = 4;
  c.layers = {c, c};
  c.layers[1].n_head = 2;
  std::vector<std::pair<std::int64_t, std::int64_t>> heads;
  for (const HeadId& id : all_heads(c.resolved())) heads.emplace_back(id.layer, id.head);
  EXPECT_THAT(heads, ElementsAre(std::pair(0, 0), std::pair(1, 0), std::pair(1, 1)));
}

TEST(LogitLens, EachStageUnembedsItsStreamAndTheLastIsTheOutput) {
  for (const auto& [name, c] : test::tiny_models()) {
    SCOPED_TRACE(name);
    Model model(c, 3);
    test::disturb<float>(model, 0.3, 4);
    const Trace trace = trace_text(model, test::random_tokens(c, 1, 9, 5).tokens, {.lens_top = 4});
    ASSERT_EQ(trace.lens.size(), 3U);
    // The embedding's stage by hand: the residual stream (normed if the model does so) times the head.
    const Tensor first = model.unembed(trace.layers[0].resid_pre.view());  // [ctx, vocab_size]
    double sum = 0;
    for (std::int64_t i = 0; i < c.vocab_size; ++i) sum += std::exp(double{first.data<float>()[i]});
    const double next = std::exp(double{first.data<float>()[trace.tokens[1]]}) / sum;
    EXPECT_NEAR(trace.lens[0].next_prob.data<float>()[0], next, 1e-5);
    const LensStage& output = trace.lens[2];
    for (std::int64_t t = 0; t < 9; ++t) {
      const float* row = trace.logits.data<float>() + t * c.vocab_size;
      EXPECT_EQ(output.top_ids.data<std::int32_t>()[t * 4], std::max_element(row, row + c.vocab_size) - row);
      EXPECT_EQ(output.top_probs.data<float>()[t * 4], output.last_prob.data<float>()[t]);
    }
  }
}

TEST(Rollout, HandWorked) {
  // Layer 0, two heads: mean pattern [[1, 0], [1/2, 1/2]] -> A0 = [[1, 0], [1/4, 3/4]].
  // Layer 1, both heads attend to token 0: mean [[1, 0], [1, 0]] -> A1 = [[1, 0], [1/2, 1/2]].
  // A1 A0 = [[1, 0], [1/2 + 1/8, 3/8]].
  const Tensor first = f32({2, 2, 2}, {1, 0, 1, 0, 1, 0, 0, 1});
  const Tensor second = f32({2, 2, 2}, {1, 0, 1, 0, 1, 0, 1, 0});
  const std::vector<const Tensor*> patterns{&first, &second};
  EXPECT_THAT(values_of<float>(attention_rollout(patterns)), ElementsAre(1, 0, 0.25F, 0.75F, 1, 0, 0.625F, 0.375F));
  EXPECT_THROW(attention_rollout({}), std::invalid_argument);
  const Tensor flat = f32({2, 2}, {1, 0, 1, 0});
  EXPECT_THROW(attention_rollout(std::vector<const Tensor*>{&flat}), std::invalid_argument);
  const Tensor larger({2, 3, 3});
  EXPECT_THROW(attention_rollout(std::vector<const Tensor*>{&first, &larger}), std::invalid_argument);
}

TEST(Rollout, RowsSumToOneAndIgnoreTheFuture) {
  const ModelConfig c = test::tiny_llama();
  Model model(c, 3);
  test::disturb<float>(model, 0.5, 4);
  const Trace trace = trace_text(model, test::random_tokens(c, 1, 11, 5).tokens);
  for (std::int64_t l = 0; l < 2; ++l)
    for (std::int64_t i = 0; i < 11; ++i) {
      double sum = 0;
      for (std::int64_t j = 0; j < 11; ++j) {
        const float x = trace.rollout.data<float>()[(l * 11 + i) * 11 + j];
        sum += x;
        if (j > i) {
          EXPECT_EQ(x, 0);
        }
      }
      EXPECT_NEAR(sum, 1, 1e-6);
    }
}

// A model with W_Q = W_K = 0, so that each query attends uniformly and the scores are known.
TEST(HeadScores, HandWorkedForUniformHeads) {
  ModelConfig c = test::tiny_andrea();
  Model model(c, 3);
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    if (model.infos()[i].name.find(".wq") != std::string::npos)
      model.change_parameters()[i] = Tensor(model.infos()[i].shape);
  const std::vector<HeadScores> scores = head_scores(model, {.length = 3, .sequences = 2});
  ASSERT_EQ(scores.size(), 8U);
  // ctx 6: query i gives each key the weight 1 / (i + 1).
  const double every = (1.0 / 3 + 1.0 / 4 + 1.0 / 5 + 1.0 / 6) / 4, second = (1.0 / 4 + 1.0 / 5 + 1.0 / 6) / 3;
  for (const HeadScores& s : scores) {
    EXPECT_NEAR(s.previous_token, every, 1e-6);
    EXPECT_NEAR(s.first_token, every, 1e-6);
    EXPECT_NEAR(s.duplicate_token, second, 1e-6);
    EXPECT_NEAR(s.induction, second, 1e-6);
  }
  EXPECT_EQ(scores[5].layer, 1);
  EXPECT_EQ(scores[5].head, 1);
  EXPECT_THROW(head_scores(model, {.length = 2}), std::invalid_argument);
  EXPECT_THROW(head_scores(model, {.length = 7}), std::invalid_argument) << "ctx_len is 12";
  EXPECT_THROW(head_scores(model, {.length = 6, .begin_token = 0}), std::invalid_argument);
  EXPECT_THROW(head_scores(model, {.sequences = 0}), std::invalid_argument);
  EXPECT_EQ(head_scores(model, {.length = 5, .vocab_limit = 3}).size(), 8U) << "fewer tokens than are sampled";
  EXPECT_NEAR(head_scores(model, {.alphabet = {7, 3, 7, 18}})[0].first_token, every, 1e-6) << "three different ones";
  EXPECT_THROW(head_scores(model, {.alphabet = {7, 7}}), std::invalid_argument);
  EXPECT_THROW(head_scores(model, {.begin_token = 3, .alphabet = {7, 3}}), std::invalid_argument);
  EXPECT_THROW(head_scores(model, {.alphabet = {7, 3, 19}}), std::invalid_argument);
  EXPECT_THROW(head_scores(model, {.alphabet = {7, 3, -1}}), std::invalid_argument);
  c.ctx_len = 5;
  Model narrow(c, 3);
  EXPECT_THROW(head_scores(narrow), std::invalid_argument);
}

TEST(HeadScores, FindThePreviousTokenHead) {
  // Queries are shifted by one position: position_embedding[t] = e_t, W_Q maps e_t to e_(t-1), W_K maps e_t to itself.
  ModelConfig c;
  c.n_layer = 1;
  c.n_head = 2;
  c.head_dim = 16;
  c.d_model = 16;
  c.vocab_size = 11;
  c.ctx_len = 16;
  c.embedding_norm = false;
  Model model(c, 3);
  const Model::ParameterAccess access = model.change_parameters();
  std::vector<Tensor>& p = *access;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const std::string& name = model.infos()[i].name;
    const auto set = [&](std::int64_t row, std::int64_t column, float x) {
      p[i].data<float>()[row * p[i].shape()[1] + column] = x;
    };
    if (name == "token_embedding" || name.find(".wq") != std::string::npos || name.find(".wk") != std::string::npos ||
        name == "position_embedding")
      p[i] = Tensor(p[i].shape());
    for (std::int64_t t = 0; t < 16; ++t) {
      if (name == "position_embedding") set(t, t, 1);
      if (name == "layers.0.wk") set(t, 16 + t, 30);               // head 1
      if (name == "layers.0.wq" && t > 0) set(t, 16 + t - 1, 30);  // head 0 attends uniformly
    }
  }
  const std::vector<HeadScores> scores = head_scores(model);
  EXPECT_GT(scores[1].previous_token, 0.99);
  EXPECT_LT(scores[1].first_token, 0.01);
  EXPECT_LT(scores[0].previous_token, 0.3);
}

class Effects : public testing::Test {
 protected:
  Effects() : c(test::tiny_llama()), model(c, 3) { test::disturb<float>(model, 0.4, 4); }
  std::vector<std::int32_t> drawn(std::int64_t ctx, std::uint64_t seed) {
    return test::random_tokens(c, 1, ctx, seed).tokens;
  }
  ModelConfig c;
  Model model;
};

TEST_F(Effects, NoChangeHasNoEffect) {
  const std::vector<std::int32_t> text = drawn(8, 5);
  const HeadEffect none = head_effect(model, text, {});
  EXPECT_EQ(none.kl, 0);
  EXPECT_EQ(none.before, none.after);
  const std::vector<HeadId> heads{{0, 1}, {1, 2}, {1, 3}};
  const HeadEffect itself = head_effect(model, text, {}, heads, text);
  EXPECT_EQ(itself.kl, 0) << "patched with its own output";
  EXPECT_EQ(itself.before, itself.after);
}

TEST_F(Effects, AZeroedHeadEqualsZeroRowsOfWo) {
  const std::vector<std::int32_t> text = drawn(8, 5);
  const std::vector<HeadId> heads{{1, 2}};
  const HeadEffect effect = head_effect(model, text, heads);
  EXPECT_GT(effect.kl, 1e-4);
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    if (model.infos()[i].name == "layers.1.wo")
      std::fill_n(model.change_parameters()[i].data<float>() + 2 * c.v_head_dim * c.d_model, c.v_head_dim * c.d_model,
                  0.0F);
  const HeadEffect without = head_effect(model, text, {});
  double kl = 0, sum = 0;
  for (std::size_t i = 0; i < effect.after.size(); ++i) {
    EXPECT_NEAR(effect.after[i], without.before[i], 1e-6);
    kl += effect.before[i] * std::log(double{effect.before[i]} / effect.after[i]);
    sum += effect.after[i];
  }
  EXPECT_NEAR(effect.kl, kl, 1e-6);
  EXPECT_NEAR(sum, 1, 1e-6);
}

TEST_F(Effects, PatchingEveryHeadOfTheLastLayerReproducesItsAttention) {
  // The texts differ only before the last token, so at the last token the streams differ only by the attention output.
  ModelConfig one = c;
  one.n_layer = 1;
  Model small(one, 3);
  test::disturb<float>(small, 0.4, 4);
  std::vector<std::int32_t> text = drawn(8, 5), other = drawn(5, 6);
  other.back() = text.back();
  const std::vector<HeadId> all{{0, 0}, {0, 1}, {0, 2}, {0, 3}}, some{{0, 0}};
  const HeadEffect patched = head_effect(small, text, {}, all, other), there = head_effect(small, other, {});
  EXPECT_GT(patched.kl, 1e-4);
  for (std::size_t i = 0; i < patched.after.size(); ++i) EXPECT_NEAR(patched.after[i], there.before[i], 1e-6);
  EXPECT_NE(head_effect(small, text, {}, some, other).after, patched.after);
}

TEST_F(Effects, RefusesHeadsThatDoNotExist) {
  const std::vector<std::int32_t> text = drawn(8, 5);
  using Heads = std::vector<HeadId>;
  for (const Heads& bad : {Heads{{2, 0}}, Heads{{0, 4}}, Heads{{-1, 0}}, Heads{{0, -1}}}) {
    EXPECT_THROW(head_effect(model, text, bad), std::invalid_argument);
    EXPECT_THROW(head_effect(model, text, {}, bad, text), std::invalid_argument);
  }
  EXPECT_THROW(head_effect(model, text, {}, Heads{{0, 0}}), std::invalid_argument) << "no text to patch from";
  EXPECT_THROW(head_effect(model, text, Heads{{0, 0}}, Heads{{0, 0}}, text), std::invalid_argument);
  EXPECT_THROW(head_effect(model, {}, {}), std::invalid_argument);
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(LayersThatDiffer, AreInspectedWithTheirOwnHeads) {
  ModelConfig c = test::tiny_llama();
  c.layers.assign(2, c);
  c.layers[0].n_head = c.layers[0].n_kv_head = 2;
  c.layers[1].head_dim = c.layers[1].v_head_dim = 6;
  c = c.resolved();
  Model model(c, 3);
  test::disturb<float>(model, 0.3, 4);
  const std::vector<std::int32_t> tokens = test::random_tokens(c, 1, 9, 5).tokens;
  const Trace trace = trace_text(model, tokens);
  EXPECT_EQ(trace.layers[0].pattern.shape(), (Dims{2, 9, 9}));
  EXPECT_EQ(trace.layers[1].pattern.shape(), (Dims{4, 9, 9}));
  for (std::int64_t row = 0; row < 2 * 9; ++row) {
    double sum = 0;
    for (std::int64_t j = 0; j < 9; ++j) sum += trace.rollout.data<float>()[row * 9 + j];
    EXPECT_NEAR(sum, 1, 1e-5);
  }
  const std::vector<HeadScores> scores = head_scores(model, {.length = 4});
  std::vector<std::string> names;
  for (const HeadScores& one : scores) names.push_back(std::to_string(one.layer) + "." + std::to_string(one.head));
  EXPECT_THAT(names, ElementsAre("0.0", "0.1", "1.0", "1.1", "1.2", "1.3"));
  for (const HeadScores& one : scores) EXPECT_GT(one.first_token, 0);
  const std::vector<HeadId> there{{1, 3}}, lacking{{0, 2}};
  EXPECT_GT(head_effect(model, tokens, there).kl, 0);
  EXPECT_THAT(message_of([&] { head_effect(model, tokens, lacking); }), testing::HasSubstr("head 2; found 0.2"));
  const std::int64_t square = 4 * 9 * 9, logits = 2 * 4 * 9 * c.vocab_size;
  EXPECT_EQ(trace_bytes(c, 9, {.rollout = false}), (6 * 4 + 4 * 4) * square + logits);
}

TEST(LayersThatDiffer, APageRefusesByNameWhatItCannotShow) {
  const auto message = [](const auto& change) {
    ModelConfig c = test::tiny_llama();
    c.layers.assign(2, c);
    change(c.layers[1]);
    Model model(c, 3);
    const std::vector<std::int32_t> tokens = test::random_tokens(c, 1, 9, 5).tokens;
    const Trace trace = trace_text(model, tokens);
    const std::string found = message_of([&] { inspect_page(trace, Tokenizer::bytes()); });
    EXPECT_EQ(message_of([&] { require_page_fits(model, tokens); }), found);
    return found;
  };
  using testing::HasSubstr;
  EXPECT_THAT(message([](LayerConfig& c) { c.n_head = 2; }), HasSubstr("found a different number in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.v_head_dim = 2; }), HasSubstr("found a different size in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.positions = Positions::none; }), HasSubstr("rotary positions in all"));
  EXPECT_THAT(message([](LayerConfig& c) { c.window_left = 3; }), HasSubstr("found a window in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.attention_scale = 3; }), HasSubstr("found an attention_scale in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.softcap = 3; }), HasSubstr("found a softcap in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.alibi = true; }), HasSubstr("found ALiBi in layer 1"));
  EXPECT_THAT(message([](LayerConfig& c) { c.sinks = true; }), HasSubstr("found sinks in layer 1"));
  EXPECT_EQ(message([](LayerConfig& c) {
              c.rope_theta = 50;
              c.d_ff = 40;
              c.norm_place = NormPlace::both;
            }),
            "nothing was thrown");
}

TEST(SaveTrace, NamesAndShapesOfTransformerLens) {
  const ModelConfig c = test::tiny_llama();
  Model model(c, 3);
  const Trace trace = trace_text(model, test::random_tokens(c, 1, 7, 5).tokens);
  const std::string folder = testing::TempDir() + "qkv_trace_" + std::to_string(::getpid());
  EXPECT_EQ(save_trace(folder, trace), 2 * 20 + 1 + 2 + 2)
      << "all sites but products and scaled; the embedding, the last norm, tokens and logits";
  const auto shape = [&](const std::string& name) { return load_npy(folder + "/" + name + ".npy").shape(); };
  EXPECT_EQ(shape("blocks.0.attn.hook_q"), (Dims{1, 7, 4, 4}));
  EXPECT_EQ(shape("blocks.1.attn.hook_k"), (Dims{1, 7, 2, 4}));
  EXPECT_EQ(shape("blocks.1.attn.hook_rot_k"), (Dims{1, 7, 2, 4}));
  EXPECT_EQ(shape("blocks.0.attn.hook_attn_scores"), (Dims{1, 4, 7, 7}));
  EXPECT_EQ(shape("blocks.0.attn.hook_pattern"), (Dims{1, 4, 7, 7}));
  EXPECT_EQ(shape("blocks.0.attn.hook_z"), (Dims{1, 7, 4, 4}));
  EXPECT_EQ(shape("blocks.0.hook_resid_pre"), (Dims{1, 7, 16}));
  EXPECT_EQ(shape("blocks.1.hook_resid_post"), (Dims{1, 7, 16}));
  EXPECT_EQ(shape("blocks.0.mlp.hook_pre"), (Dims{1, 7, 24}));
  EXPECT_EQ(shape("blocks.0.mlp.hook_pre_linear"), (Dims{1, 7, 24}));
  EXPECT_EQ(shape("blocks.1.ln1.hook_scale"), (Dims{1, 7, 1}));
  EXPECT_EQ(shape("blocks.0.ln2.hook_normalized"), (Dims{1, 7, 16}));
  EXPECT_EQ(shape("hook_embed"), (Dims{1, 7, 16}));
  EXPECT_EQ(shape("ln_final.hook_scale"), (Dims{1, 7, 1}));
  EXPECT_EQ(shape("tokens"), (Dims{1, 7}));
  EXPECT_EQ(shape("logits"), (Dims{1, 7, 19}));
  const Tensor pattern = load_npy(folder + "/blocks.1.attn.hook_pattern.npy");
  EXPECT_THAT(values_of<float>(pattern), ElementsAreArray(values_of<float>(trace.layers[1].pattern)));
  std::filesystem::remove_all(folder);
  EXPECT_THROW(save_trace("/dev/null/nowhere", trace), FileError);
}

}  // namespace
}  // namespace qkv
