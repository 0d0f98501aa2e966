// SPDX-License-Identifier: Apache-2.0
// Later tokens do not affect earlier ones: neither outputs, nor the gradients of a loss on earlier outputs.
#include <gtest/gtest.h>

#include <string>

#include "attention/arrays.h"

namespace qkv::test {
namespace {

constexpr std::int64_t kTokens = 150, kHeads = 4, kKvHeads = 2, kDk = 9, kDv = 5;

struct Tokens {
  Tensor q = random({1, kHeads, kTokens, kDk}, 1), k = random({1, kKvHeads, kTokens, kDk}, 2);
  Tensor v = random({1, kKvHeads, kTokens, kDv}, 3), dout = random({1, kHeads, kTokens, kDv}, 4);
};

// Replaces the tokens from `first` on of [1, heads, tokens, d].
void replace_from(Tensor& t, std::int64_t first, double factor, double shift) {
  const std::int64_t heads = t.shape()[1], d = t.shape()[3];
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t e = (h * kTokens + first) * d; e < (h + 1) * kTokens * d; ++e)
      t.data()[e] = t.data()[e] * static_cast<float>(factor) + static_cast<float>(shift);
}

// The first `count` tokens of [1, heads, tokens, d].
ConstView first_tokens(const Tensor& t, std::int64_t count) {
  ConstView v = t;
  v.shape[2] = count;
  return v;
}

class Causality : public ::testing::TestWithParam<AttentionPath> {};
INSTANTIATE_TEST_SUITE_P(Paths, Causality, ::testing::ValuesIn(paths()));

TEST_P(Causality, LaterTokensChangeNoEarlierBit) {
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.path = GetParam();
  for (bool windowed : {false, true}) {
    options.window_left = windowed ? 40 : -1;
    for (std::int64_t t : {1, 2, 47, 48, 63, 64, 65, 96, 127, 128, 129, 149}) {
      SCOPED_TRACE("first changed token " + std::to_string(t));
      Tokens before, after;
      replace_from(before.dout, t, 0, 0);  // the loss uses only the first t outputs
      replace_from(after.dout, t, 0, 0);
      replace_from(after.q, t, -3, 1);
      replace_from(after.k, t, 2, 5);
      replace_from(after.v, t, 100, -7);
      const Forward f = forward(before.q, before.k, before.v, options);
      const Forward g = forward(after.q, after.k, after.v, options);
      EXPECT_TRUE(same_bits(first_tokens(f.out, t), first_tokens(g.out, t)));
      ConstView lse_f = f.lse, lse_g = g.lse;
      lse_f.shape[2] = lse_g.shape[2] = t;
      EXPECT_TRUE(same_bits(lse_f, lse_g));
      const Backward b = backward(before.q, before.k, before.v, f, before.dout, options);
      const Backward c = backward(after.q, after.k, after.v, g, after.dout, options);
      EXPECT_TRUE(same_bits(first_tokens(b.dq, t), first_tokens(c.dq, t)));
      EXPECT_TRUE(same_bits(first_tokens(b.dk, t), first_tokens(c.dk, t)));
      EXPECT_TRUE(same_bits(first_tokens(b.dv, t), first_tokens(c.dv, t)));
      for (const Tensor* later : {&c.dk, &c.dv})  // and later tokens get no gradient
        for (std::int64_t h = 0; h < kKvHeads; ++h)
          for (std::int64_t e = (h * kTokens + t) * later->shape()[3]; e < (h + 1) * kTokens * later->shape()[3]; ++e)
            ASSERT_EQ(later->data()[e], 0);
    }
  }
}

// Leaving tokens out at the end gives the same results as masking them.
TEST_P(Causality, PrefixesMatchTheWholeBitForBit) {
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.path = GetParam();
  const Tokens all;
  const Forward whole = forward(all.q, all.k, all.v, options);
  for (std::int64_t t : {1, 5, 48, 64, 65, 100, 127, 128, 129}) {
    const Forward part = forward(first_tokens(all.q, t), first_tokens(all.k, t), first_tokens(all.v, t), options);
    EXPECT_TRUE(same_bits(part.out, first_tokens(whole.out, t))) << t;
  }
}

}  // namespace
}  // namespace qkv::test
