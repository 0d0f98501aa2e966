// SPDX-License-Identifier: Apache-2.0
// Prefill and decode in f64 on the reference device: the full pass, token by token.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "model/tiny_models.h"

namespace qkv {
namespace {

// The largest difference between two f64 views [1, heads, size, d], of any strides.
double difference(const ConstView& a, const ConstView& b) {
  double most = 0;
  for (std::int64_t h = 0; h < a.shape[1]; ++h)
    for (std::int64_t t = 0; t < a.shape[2]; ++t)
      for (std::int64_t i = 0; i < a.shape[3]; ++i) {
        const auto at = [&](const ConstView& x) {
          return static_cast<const double*>(x.data)[h * x.strides[1] + t * x.strides[2] + i * x.strides[3]];
        };
        most = std::max(most, std::abs(at(a) - at(b)));
      }
  return most;
}

TEST(DecodeOnReference, TokenByTokenMatchesTheFullPass) {
  for (const auto& [name, c] : test::tiny_models()) {
    SCOPED_TRACE(name);
    Model model(c, 1, "reference");
    const test::Tokens tokens = test::random_tokens(c, 1, c.ctx_len, 3);
    const Tensor full = model.logits(tokens);  // [1, ctx, vocab_size]
    ModelState state = model.make_state(), at_once = model.make_state();
    std::vector<float> logits(static_cast<std::size_t>(c.vocab_size));
    for (std::int64_t t = 0; t < c.ctx_len; ++t) {
      model.decode(std::span(tokens.tokens).subspan(static_cast<std::size_t>(t), 1), state, logits);
      for (std::size_t i = 0; i < logits.size(); ++i) {
        const double expected = full.data<double>()[t * c.vocab_size + static_cast<std::int64_t>(i)];
        ASSERT_NEAR(logits[i], expected, 1e-12 + 6e-8 * std::abs(expected)) << "token " << t;  // rounded to f32
      }
    }
    model.decode(tokens.tokens, at_once, {});
    for (std::size_t l = 0; l < state.layers.size(); ++l) {
      ASSERT_EQ(state.layers[l].k().dtype, DType::f64);
      EXPECT_LE(difference(state.layers[l].k(), at_once.layers[l].k()), 1e-12);
      EXPECT_LE(difference(state.layers[l].v(), at_once.layers[l].v()), 1e-12);
    }
  }
}

TEST(DecodeOnReference, AStateRoundTripsThroughBytesAndIsTruncated) {
  const ModelConfig c = test::tiny_llama();
  Model model(c, 1, "reference");
  const test::Tokens tokens = test::random_tokens(c, 1, c.ctx_len, 3);
  ModelState state = model.make_state(), copy = model.make_state();
  std::vector<float> first(19), again(19);
  model.decode(std::span(tokens.tokens).first(6), state, first);
  copy.from_bytes(state.to_bytes());
  copy.truncate(5);
  model.decode(std::span(tokens.tokens).subspan(5, 1), copy, again);
  EXPECT_EQ(first, again);
}

TEST(DecodeOnReference, CachesOfOtherTypesAreRefused) {
  const Model model(test::tiny_andrea(), 1, "reference");
  EXPECT_THROW(model.make_state(DType::f32), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
