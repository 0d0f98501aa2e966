// SPDX-License-Identifier: Apache-2.0
// The loss of random weights is that of a random guess, ln(vocab_size), within 0.1. QKV_LONG_TESTS=1: also all presets,
// widths up to 1,536 and vocabularies up to 50,000 together (some minutes and 4 GB).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <sstream>

#include "model/tiny_models.h"
#include "qkv/model.h"

namespace qkv {
namespace {

bool long_tests() { return std::getenv("QKV_LONG_TESTS") != nullptr; }

std::string described(const ModelConfig& c) {
  std::ostringstream text;
  text << "d_model " << c.d_model << ", vocabulary " << c.vocab_size << ", " << c.n_layer << " layers, norms "
       << static_cast<int>(c.norm_place) << (c.tied_head ? ", tied" : "") << (c.embedding_norm ? ", embedding norm" : "")
       << (c.final_norm ? ", final norm" : "") << (c.gated ? ", gated" : "") << ", embedding scale "
       << c.embedding_scale << ", logit scale " << c.logit_scale << ", residual scale " << c.residual_scale;
  return text.str();
}

// Random targets: one sequence of random tokens and one of a single token, which reads nothing but itself.
void expect_a_guess(const ModelConfig& given, std::uint64_t seed) {
  const ModelConfig c = given.resolved();
  SCOPED_TRACE(described(c));
  Model model(c, seed);
  test::Tokens tokens = test::random_tokens(c, 2, std::min<std::int64_t>(c.ctx_len, long_tests() ? 1024 : 400), seed);
  const std::size_t one = tokens.tokens.size() / 2;
  std::fill(tokens.tokens.begin() + static_cast<std::ptrdiff_t>(one), tokens.tokens.end(), tokens.tokens.back());
  const Random random(seed, 7);
  for (std::size_t i = 0; i < tokens.targets.size(); ++i)
    tokens.targets[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(c.vocab_size)));
  const double guess = std::log(static_cast<double>(c.vocab_size));
  EXPECT_NEAR(model.loss(tokens.sequence(0)).mean(), guess, 0.1);
  EXPECT_NEAR(model.loss(tokens.sequence(1)).mean(), guess, 0.1);
}

ModelConfig random_config(test::Draws& draw, std::int64_t d_model, std::int64_t vocab_size) {
  ModelConfig c = draw.yes() ? preset("llama-1m") : preset("gpt2-4m");
  c.d_model = d_model;
  c.vocab_size = vocab_size;
  c.n_layer = 1 + draw.pick(d_model > 768 ? 1 : 3);
  c.n_head = d_model / 32;
  c.n_kv_head = c.head_dim = c.v_head_dim = 0;
  c.d_ff = draw.yes() ? d_model : 2 * d_model;
  c.ctx_len = 1024;
  c.norm_place = static_cast<NormPlace>(draw.pick(3));
  c.tied_head = draw.yes();
  c.embedding_norm = draw.yes();
  c.final_norm = draw.yes();
  c.embedding_scale = draw.yes() ? 1 : std::sqrt(static_cast<double>(d_model));
  c.logit_scale = draw.yes() ? 1 : draw.yes() ? 0.25 : 4;
  c.residual_scale = draw.yes() ? 1 : 0.5;
  return c;
}

TEST(InitialLoss, TiedHeads) {
  std::uint64_t seed = 0;
  for (const std::int64_t vocab : {85, 256}) {
    for (const std::int64_t width : {64, 192, 768}) {
      for (const bool embedding_norm : {false, true}) {
        ModelConfig c = preset("llama-1m");
        c.n_layer = 2;
        c.d_model = width;
        c.head_dim = c.v_head_dim = 32;
        c.d_ff = width;
        c.ctx_len = 512;
        c.vocab_size = vocab;
        c.embedding_norm = embedding_norm;
        expect_a_guess(c, ++seed);
      }
    }
  }
}

TEST(InitialLoss, RandomConfigurations) {
  test::Draws draw(5);
  struct Size {
    std::int64_t width, vocab;
  };
  for (const Size size : {Size{64, 85}, {64, 20000}, {96, 4096}, {192, 85}, {192, 8192}, {384, 256}, {384, 2048},
                          {768, 100}, {768, 1024}, {1536, 85}}) {
    for (int i = 0; i < (size.width > 192 ? 1 : 3); ++i)
      expect_a_guess(random_config(draw, size.width, size.vocab), 100 + static_cast<std::uint64_t>(size.width + i));
  }
}

TEST(InitialLoss, Presets) {
  constexpr std::int64_t kQuick = 5'000'000;
  for (const std::string& name : preset_names()) {
    SCOPED_TRACE(name);
    if (long_tests() || parameter_count(preset(name)) < kQuick) expect_a_guess(preset(name), 1337);
  }
}

TEST(InitialLoss, ManyRandomConfigurations) {
  if (!long_tests()) GTEST_SKIP() << "QKV_LONG_TESTS=1 runs it";
  test::Draws draw(6);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t width = std::int64_t{32} * (2 + draw.pick(47));
    const auto vocab = static_cast<std::int64_t>(85 * std::pow(50000.0 / 85, static_cast<double>(draw.pick(1000)) / 999));
    expect_a_guess(random_config(draw, width, vocab), 1000 + static_cast<std::uint64_t>(i));
  }
}

}  // namespace
}  // namespace qkv
