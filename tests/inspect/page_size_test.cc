// SPDX-License-Identifier: Apache-2.0
// A page that would exceed its size limit is refused early, with a length that would fit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/inspect.h"
#include "qkv/tokenizer.h"

namespace qkv {
namespace {

ModelConfig config() {
  ModelConfig c = test::tiny_andrea();
  c.n_layer = 3;
  c.d_model = c.d_ff = 32;
  c.head_dim = c.v_head_dim = 8;
  c.vocab_size = 256;
  c.ctx_len = 1200;
  c.positions = Positions::rotary;
  return c;
}

std::string refused(Model& model, const std::vector<std::int32_t>& tokens, std::size_t most) {
  try {
    require_page_fits(model, tokens, {.most_bytes = most, .first = {}});
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "";
}

TEST(PageSize, RefusesBeforeThePassAndSuggestsALength) {
  constexpr std::size_t kMax = 500'000;
  Model model(config(), 3);
  test::disturb<float>(model, 0.3, 4);
  const std::vector<std::int32_t> tokens = test::random_tokens(config(), 1, 1000, 5).tokens;
  const std::string told = refused(model, tokens, kMax);
  EXPECT_THAT(told, testing::HasSubstr("fit in 0.5 MB"));
  EXPECT_THAT(told, testing::HasSubstr(" of 1000 tokens need "));
  const std::size_t at = told.find("a text of about ");
  ASSERT_NE(at, std::string::npos) << told;
  const int fits = std::stoi(told.substr(at + 16));
  EXPECT_GE(fits, 100) << told;
  EXPECT_LE(fits, 500) << told;
  const auto page = [&](int count) {
    const std::vector<std::int32_t> first(tokens.begin(), tokens.begin() + count);
    const Tokenizer bytes = Tokenizer::bytes();
    return inspect_page(trace_text(model, bytes, first), bytes, {.most_bytes = kMax, .first = {}});
  };
  EXPECT_LE(page(fits).size(), kMax) << told;
  EXPECT_THROW(page(fits * 3 / 2), std::invalid_argument) << told;
}

TEST(PageSize, AcceptsTextsThatFit) {
  Model model(config(), 3);
  const std::vector<std::int32_t> tokens = test::random_tokens(config(), 1, 1000, 5).tokens;
  EXPECT_EQ(refused(model, tokens, 5'000'000), "");
  EXPECT_EQ(refused(model, {tokens.begin(), tokens.begin() + 50}, 200'000), "");
  EXPECT_EQ(refused(model, {}, 200'000), "") << "trace_text refuses an empty text";
}

}  // namespace
}  // namespace qkv
