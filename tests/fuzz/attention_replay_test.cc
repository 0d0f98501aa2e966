// SPDX-License-Identifier: Apache-2.0
// The fuzz target without the fuzzer: random bytes from a fixed seed.
#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"
#include "fuzz/attention_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

TEST(FuzzAttention, RandomBytesAgreeWithTheEquations) {
  set_num_threads(1);
  constexpr int kInputs = 4000, kSize = 160;
  int forward = 0, backward = 0, readable = 0;
  for (int n = 0; n < kInputs; ++n) {
    const Random random(99, static_cast<std::uint64_t>(n));
    std::uint8_t bytes[kSize];
    for (int i = 0; i < kSize; ++i) bytes[i] = static_cast<std::uint8_t>(random.bits(static_cast<std::uint64_t>(i)));
    const AttentionCase c = make_attention_case(bytes, kSize);
    forward += c.forward_comparable, backward += c.backward_comparable;
    const NaiveOutput expected = naive_attention(c.input);
    for (const double lse : expected.lse.values) readable += std::isfinite(lse);
    ASSERT_EQ(differences(c), "") << "input " << n;
  }
  EXPECT_GT(forward, kInputs / 2);  // most are compared
  EXPECT_GT(backward, kInputs / 3);
  EXPECT_GT(readable, kInputs);
}

TEST(FuzzAttention, EmptyInputIsAValidProblem) {
  set_num_threads(1);
  EXPECT_EQ(differences(make_attention_case(nullptr, 0)), "");
}

}  // namespace
}  // namespace qkv::test
