// SPDX-License-Identifier: Apache-2.0
// Dropout of probabilities preserves the mean, lse and probs; what is dropped depends only on the query-key pair.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/arrays.h"
#include "core/dropout.h"
#include "qkv/kv_cache.h"

namespace qkv::test {
namespace {

// v is the identity matrix, so out contains the weight of each key.
TEST(AttentionDropout, DropsIndividualProbabilities) {
  constexpr std::int64_t kHeads = 3, kQueries = 70, kKeys = 64;
  std::vector<double> unit(kKeys * kKeys);
  for (std::size_t j = 0; j < kKeys; ++j) unit[j * kKeys + j] = 1;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64})
    for (const AttentionPath path : paths(dtype)) {
      const Tensor q = random({1, kHeads, kQueries, 8}, 1, dtype), k = random({1, 1, kKeys, 8}, 2, dtype);
      const Tensor v = make({1, 1, kKeys, kKeys}, unit, dtype);
      AttentionOptions options;
      options.path = path;
      const Forward plain = forward(q, k, v, options);
      options.dropout = {.p = 0.4, .seed = 77, .first_sequence = 5};
      const Forward f = forward(q, k, v, options);
      EXPECT_TRUE(same_bits(plain.lse, f.lse));
      EXPECT_TRUE(same_bits(plain.probs, f.probs));
      const std::vector<double> out = values(f.out), before = values(plain.out);
      const Dropout d(0.4, 77);
      std::size_t at = 0;
      int kept = 0;
      for (std::uint32_t h = 0; h < kHeads; ++h)
        for (std::uint32_t i = 0; i < kQueries; ++i)
          for (std::uint32_t j = 0; j < kKeys; ++j, ++at) {
            const bool keeps = d.keeps_pair(5 * kHeads + h, i, j);
            kept += keeps;
            ASSERT_NEAR(out[at], keeps ? before[at] / 0.6 : 0, 1e-6) << h << ' ' << i << ' ' << j;
          }
      EXPECT_NEAR(kept, 0.6 * static_cast<double>(at), 4 * std::sqrt(0.24 * static_cast<double>(at)));
    }
}

// The mean over many seeds equals attention without dropout.
TEST(AttentionDropout, PreservesTheMean) {
  const Tensor q = random({1, 2, 5, 6}, 1), k = random({1, 1, 40, 6}, 2), v = random({1, 1, 40, 3}, 3);
  AttentionOptions options;
  const std::vector<double> plain = values(forward(q, k, v, options).out);
  std::vector<double> sum(plain.size());
  constexpr int kSeeds = 4000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    options.dropout = {.p = 0.3, .seed = static_cast<std::uint64_t>(seed)};
    Tensor out({1, 2, 5, 3});
    attention(q, k, v, options, {out, {}, {}});
    const std::vector<double> found = values(out);
    for (std::size_t e = 0; e < sum.size(); ++e) sum[e] += found[e] / kSeeds;
  }
  // One element's deviation is below sqrt(0.3 / 0.7) * |v| * sqrt(sum of squared probs) < 0.65 * 0.6.
  for (std::size_t e = 0; e < sum.size(); ++e) EXPECT_NEAR(sum[e], plain[e], 5 * 0.4 / std::sqrt(kSeeds));
}

TEST(AttentionDropout, DiffersBySeedAndSequence) {
  const Tensor q = random({1, 1, 9, 6}, 1), k = random({1, 1, 40, 6}, 2), v = random({1, 1, 40, 3}, 3);
  AttentionOptions a, b, c;
  a.dropout = {.p = 0.5, .seed = 1};
  b.dropout = {.p = 0.5, .seed = 2};
  c.dropout = {.p = 0.5, .seed = 1, .first_sequence = 1};
  const Forward first = forward(q, k, v, a);
  EXPECT_FALSE(same_bits(first.out, forward(q, k, v, b).out));
  EXPECT_FALSE(same_bits(first.out, forward(q, k, v, c).out));
  EXPECT_TRUE(same_bits(first.out, forward(q, k, v, a).out));
}

TEST(AttentionDropout, IsRefusedWhenDecoding) {
  KvCache cache(1, 1, 4, 4, 8);
  const Tensor k = random({1, 1, 2, 4}, 1), q = random({1, 1, 1, 4}, 2);
  cache.append(k, k);
  Tensor out({1, 1, 1, 4});
  AttentionOptions options;
  options.dropout.p = 0.1;
  EXPECT_THROW(cache.attend(q, options, {out, {}, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace qkv::test
