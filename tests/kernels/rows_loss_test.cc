// SPDX-License-Identifier: Apache-2.0
// The loss of a row of logits and its gradient, in every set.
#include <cmath>

#include "kernels/rows.h"

namespace qkv::test {
namespace {

constexpr std::int64_t kPadding = 7;

struct Row {
  double loss;
  std::vector<float> dlogits;
};

// Lanes past vocab contain NaN on entry.
template <class S>
Row run_row(const RowKernels& table, std::int64_t vocab, std::int64_t target, bool hostile, bool in_place) {
  Numbers numbers(static_cast<std::uint64_t>(vocab) + 5);
  Guarded<float> logits(vocab + kPadding, 3, kNaN);
  Guarded<S> dlogits(vocab + kPadding, 1);
  Guarded<float> real(vocab);
  fill_stored(numbers, real, hostile, 3);
  for (std::int64_t i = 0; i < vocab; ++i) logits[i] = real[i];
  const double alone =
      table.of<S>().cross_entropy(vocab, vocab + kPadding, logits.data(), target, 0.25f, static_cast<S*>(nullptr));
  for (std::int64_t i = 0; i < vocab; ++i) EXPECT_TRUE(same(logits[i], real[i]));  // without a gradient: unchanged
  Row row;
  if constexpr (std::is_same_v<S, float>) {
    S* to = in_place ? logits.data() : dlogits.data();
    row.loss = table.f32.cross_entropy(vocab, vocab + kPadding, logits.data(), target, 0.25f, to);
    row.dlogits = in_place ? widened(logits) : widened(dlogits);
  } else {
    row.loss = table.half.cross_entropy(vocab, vocab + kPadding, logits.data(), target, 0.25f, dlogits.data());
    row.dlogits = widened(dlogits);
  }
  EXPECT_TRUE(logits.intact() && dlogits.intact());
  EXPECT_TRUE(alone == row.loss || (std::isnan(alone) && std::isnan(row.loss)));
  return row;
}

TEST(RowLoss, GivesTheSameBitsInAllSets) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const bool hostile : {false, true})
      for (const bool in_place : {false, true})
        for (const std::int64_t vocab : kRowSizes)
          for (const std::int64_t target : {std::int64_t{-1}, std::int64_t{0}, vocab - 1})
            expect_same_in_all_sets([&](const RowKernels& table) {
              const Row row = run_row<S>(table, vocab, target, hostile, in_place);
              std::vector<float> all = row.dlogits;
              all.push_back(static_cast<float>(row.loss));
              all.push_back(static_cast<float>(row.loss - static_cast<double>(all.back())));
              return all;
            });
  });
}

TEST(RowLoss, MatchesTheDefinition) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const std::int64_t vocab : kRowSizes) {
      const std::int64_t target = vocab / 2;
      const Row row = run_row<S>(*available_row_tables().back(), vocab, target, false, true);
      Numbers numbers(static_cast<std::uint64_t>(vocab) + 5);
      Guarded<float> logits(vocab);
      fill_stored(numbers, logits, false, 3);
      double sum = 0;
      for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(static_cast<double>(logits[j]));
      EXPECT_NEAR(row.loss, std::log(sum) - static_cast<double>(logits[target]), 2e-6);
      for (std::int64_t j = 0; j < vocab; ++j) {
        const double exact = 0.25 * (std::exp(static_cast<double>(logits[j])) / sum - (j == target ? 1 : 0));
        ASSERT_NEAR(static_cast<double>(row.dlogits[static_cast<std::size_t>(j)]), exact, tolerance<S>(exact, 1e-7));
      }
      for (std::int64_t j = vocab; j < vocab + kPadding; ++j)
        ASSERT_TRUE(same_bits(row.dlogits[static_cast<std::size_t>(j)], 0.0f));
    }
  });
}

TEST(RowLoss, IgnoresARowWithoutTarget) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const RowKernels* table : available_row_tables()) {
      const Row row = run_row<S>(*table, 17, -1, true, true);
      EXPECT_EQ(row.loss, 0);
      for (const float x : row.dlogits) EXPECT_TRUE(same_bits(x, 0.0f));
    }
  });
}

TEST(RowLoss, WorkedByHand) {
  // Logits ln 1, ln 3 and target 1: -ln(3/4); the gradient is 1/4, -1/4. Logits 1000 and 0: 1000 nats for the second.
  for (const RowKernels* table : available_row_tables()) {
    float logits[] = {0, std::log(3.0f)}, far[] = {1000, 0}, out[2];
    EXPECT_NEAR(table->f32.cross_entropy(2, 2, logits, 1, 1, logits), std::log(4.0 / 3), 1e-7);
    EXPECT_NEAR(logits[0], 0.25, 1e-7);
    EXPECT_NEAR(logits[1], -0.25, 1e-7);
    EXPECT_EQ(table->f32.cross_entropy(2, 2, far, 1, 1, out), 1000);
    EXPECT_EQ(out[0], 1);
    EXPECT_EQ(out[1], -1);
  }
}

}  // namespace
}  // namespace qkv::test
