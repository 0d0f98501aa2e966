// SPDX-License-Identifier: Apache-2.0
// Traced norms and embeddings compared with their formulas; and traces saved to files during the pass.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>

#include "model/tiny_models.h"
#include "qkv/array_file.h"
#include "qkv/error.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

// A parameter's values, or null where the model has no such parameter.
const float* parameter(const Model& model, const std::string& name) {
  for (std::size_t i = 0; i < model.infos().size(); ++i)
    if (model.infos()[i].name == name) return model.parameters()[i].data<float>();
  return nullptr;
}

// scale = sqrt(mean(x^2) + eps), where a layernorm uses x - mean(x) for x; normalized = x / scale, for a layernorm
// times its gain plus its bias. c: the layer's configuration, or the model's for the norms outside the layers.
void expect_norm(const Model& model, const LayerConfig& c, const std::string& norm, const Tensor& x,
                 const Tensor& scale, const Tensor& normalized) {
  const std::int64_t n = x.shape()[0], d = model.config().d_model;
  const bool layernorm = c.norm == Norm::layernorm;
  ASSERT_EQ(scale.shape(), (Dims{n, 1}));
  ASSERT_EQ(normalized.shape(), (Dims{n, d}));
  const float *gain = parameter(model, norm + ".gain"), *bias = parameter(model, norm + ".bias");  // [d] or null
  for (std::int64_t t = 0; t < n; ++t) {
    const float* row = x.data<float>() + t * d;  // [d]
    double mean = 0, square = 0;
    for (std::int64_t j = 0; j < d && layernorm; ++j) mean += double{row[j]} / static_cast<double>(d);
    for (std::int64_t j = 0; j < d; ++j) square += (row[j] - mean) * (row[j] - mean) / static_cast<double>(d);
    const double wanted = std::sqrt(square + c.norm_eps);
    EXPECT_NEAR(scale.data<float>()[t], wanted, 1e-5 * wanted);
    for (std::int64_t j = 0; j < d; ++j) {
      double y = (row[j] - mean) / wanted;
      const double offset = c.norm_gain_offset ? 1 : 0;
      if (layernorm) y = y * (gain ? offset + double{gain[j]} : 1.0) + (bias ? double{bias[j]} : 0.0);
      EXPECT_NEAR(normalized.data<float>()[t * d + j], y, 1e-5 * (1 + std::abs(y)));
    }
  }
}

TEST(NormTrace, NormsAndEmbeddingsMatchTheStream) {
  for (const auto& [name, c] : test::models_of_many_shapes()) {
    SCOPED_TRACE(name);
    Model model(c, 3);
    test::disturb<float>(model, 0.3, 4);
    const test::Tokens t = test::random_tokens(c, 1, c.ctx_len, 6);
    const Trace trace = trace_text(model, t.tokens, {.lens_top = 0, .rollout = false});
    const TraceAround& a = trace.around;
    EXPECT_EQ(a.pos_embed.size() > 0, c.positions == Positions::learned);
    EXPECT_EQ(a.embed_ln_scale.size() > 0, c.embedding_norm);
    EXPECT_EQ(a.ln_final_scale.size() > 0, c.final_norm);
    const float *tokens = parameter(model, "token_embedding"), *positions = parameter(model, "position_embedding");
    Tensor sum(a.embed.shape());  // [ctx, d_model]
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      const std::int64_t token = t.tokens[static_cast<std::size_t>(i / c.d_model)], at = i % c.d_model;
      EXPECT_EQ(a.embed.data<float>()[i], tokens[token * c.d_model + at] * static_cast<float>(c.embedding_scale));
      if (positions) {
        EXPECT_EQ(a.pos_embed.data<float>()[i], positions[i]);
      }
      sum.data<float>()[i] = a.embed.data<float>()[i] + (positions ? positions[i] : 0.0F);
      if (!c.embedding_norm) {
        EXPECT_EQ(sum.data<float>()[i], trace.layers[0].resid_pre.data<float>()[i]);
      }
    }
    if (c.embedding_norm) expect_norm(model, c, "embedding_norm", sum, a.embed_ln_scale, a.embed_ln_normalized);
    for (std::size_t l = 0; l < trace.layers.size(); ++l) {
      const TraceLayer& layer = trace.layers[l];
      const std::string prefix = "layers." + std::to_string(l) + ".";
      const LayerConfig& own = c.layer(static_cast<std::int64_t>(l));
      const bool first = own.norm_place != NormPlace::after;
      const bool second = first && own.residual != Residual::parallel_shared_norm;
      EXPECT_EQ(layer.ln1_scale.size() > 0, first);
      EXPECT_EQ(layer.ln2_scale.size() > 0, second);
      if (first)
        expect_norm(model, own, prefix + "attention_norm", layer.resid_pre, layer.ln1_scale, layer.ln1_normalized);
      const Tensor& middle = own.residual == Residual::sequential ? layer.resid_mid : layer.resid_pre;
      if (second) expect_norm(model, own, prefix + "mlp_norm", middle, layer.ln2_scale, layer.ln2_normalized);
    }
    if (c.final_norm)
      expect_norm(model, c, "final_norm", trace.layers.back().resid_post, a.ln_final_scale, a.ln_final_normalized);
    EXPECT_THROW(trace.layers[0].at(TraceSite::embed), std::invalid_argument);
    EXPECT_THROW(trace.around.at(TraceSite::q), std::invalid_argument);
  }
}

std::set<std::string> files_of(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

TEST(TraceSaver, WritesDuringThePassWhatSaveTraceWritesAfterIt) {
  const ModelConfig c = test::tiny_gpt2();
  Model model(c, 3);
  const std::vector<std::int32_t> tokens = test::random_tokens(c, 1, 7, 5).tokens;
  const std::string folder = testing::TempDir() + "qkv_saver_" + std::to_string(::getpid());
  const Trace trace = trace_text(model, tokens);
  const std::int64_t files = save_trace(folder + "/after", trace);
  TraceSaver saver(folder + "/during");
  const Trace light =
      trace_text(model, tokens, {.sites = {TraceSite::resid_post}, .lens_top = 0, .rollout = false, .also = &saver});
  EXPECT_EQ(light.layers[0].pattern.size(), 0) << "is not stored";
  EXPECT_GT(light.layers[0].resid_post.size(), 0);
  saver.save_ends(light.tokens, light.logits);
  EXPECT_EQ(saver.files, files);
  const std::set<std::string> names = files_of(folder + "/after");
  EXPECT_EQ(files_of(folder + "/during"), names);
  EXPECT_EQ(static_cast<std::int64_t>(names.size()), files);
  for (const std::string& name : names) {
    const Tensor a = load_npy(folder + "/after/" + name), b = load_npy(folder + "/during/" + name);
    ASSERT_EQ(a.shape(), b.shape()) << name;
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<std::size_t>(a.size()) * dtype_size(a.dtype())), 0) << name;
  }
  std::filesystem::remove_all(folder);
  EXPECT_THROW(TraceSaver("/dev/null/nowhere"), FileError);
}

TEST(TraceBytes, CountsTheMatrices) {
  const ModelConfig c = test::tiny_andrea().resolved();  // two layers
  const std::int64_t square = 4 * 10 * 10, logits = 2 * 4 * 10 * c.vocab_size;
  using enum TraceSite;
  // Two layers of each stored matrix, those of the current layer, and a rollout of every layer.
  EXPECT_EQ(trace_bytes(c, 10, {.rollout = false}), c.n_head * (2 * 4 + 4) * square + logits);
  EXPECT_EQ(trace_bytes(c, 10, {.sites = {pattern}}), (c.n_head * (2 + 4) + 2) * square + logits);
  EXPECT_EQ(trace_bytes(c, 10, {.sites = {z}, .rollout = false}), logits) << "no matrix is allocated";
  // A million tokens take 200 TB: refused before allocating anything.
  ModelConfig longer = test::tiny_llama();
  longer.ctx_len = 1'000'000;
  Model model(longer, 3);
  EXPECT_THROW(trace_text(model, std::vector<std::int32_t>(1'000'000, 1)), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
