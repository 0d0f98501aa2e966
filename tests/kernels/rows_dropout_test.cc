// SPDX-License-Identifier: Apache-2.0
// Dropout in every set, compared with the definition in core/dropout.h element by element.
#include <cmath>

#include "core/dropout.h"
#include "kernels/rows.h"

namespace qkv::test {
namespace {

DropoutKey key_of(const Dropout& d) { return {d.seed, d.threshold, static_cast<float>(d.scale)}; }

TEST(RowDropout, MatchesTheDefinition) {
  const Dropout d(0.4, 0x123456789abcdef);
  for (const RowKernels* table : available_row_tables())
    each_storage([&](auto type) {
      using S = decltype(type);
      for (const std::uint64_t first : {0ull, 1ull, 63ull, 64ull, 1000ull, 0xffffffffull * 4, (1ull << 40) + 17})
        for (const std::int64_t size : kRowSizes) {
          SCOPED_TRACE(std::string(table->name) + ", " + std::to_string(first) + " + " + std::to_string(size));
          Numbers numbers(first + static_cast<std::uint64_t>(size));
          Guarded<float> x(size, 1);
          Guarded<S> y(size, 3);
          fill_stored(numbers, x, true);
          table->of<S>().dropout(key_of(d), first, size, x.data(), y.data());
          for (std::int64_t i = 0; i < size; ++i) {
            const float kept = stored<S>(x[i] * static_cast<float>(d.scale));
            ASSERT_TRUE(same(widen(y[i]), d.keeps(first + static_cast<std::uint64_t>(i)) ? kept : 0.0f)) << i;
          }
          EXPECT_TRUE(y.intact());
        }
    });
}

TEST(RowDropout, MayBeSplitAnywhereAndWorksInPlace) {
  const Dropout d(0.25, 5);
  for (const RowKernels* table : available_row_tables()) {
    std::vector<float> whole(1000, 1), parts(1000, 1);
    table->f32.dropout(key_of(d), 77, 1000, whole.data(), whole.data());
    for (std::int64_t i = 0, n = 1; i < 1000; i += n, n = n * 2 % 101)
      table->f32.dropout(key_of(d), 77 + static_cast<std::uint64_t>(i), std::min<std::int64_t>(n, 1000 - i),
                         parts.data() + i, parts.data() + i);
    EXPECT_EQ(whole, parts);
  }
}

TEST(RowDropout, DropsTheRequestedShareAndPreservesTheMean) {
  constexpr int kCount = 1 << 18;
  for (const double p : {0.0, 0.1, 0.5, 0.9}) {
    const Dropout d(p, 99);
    std::vector<float> x(kCount, 1);
    row_kernels().f32.dropout(key_of(d), 0, kCount, x.data(), x.data());
    double sum = 0, dropped = 0;
    for (const float value : x) sum += static_cast<double>(value), dropped += value == 0;
    const double deviation = std::sqrt(p * (1 - p) / kCount);
    EXPECT_NEAR(dropped / kCount, p, 4 * deviation);
    EXPECT_NEAR(sum / kCount, 1, 4 * deviation / (1 - p) + 1e-7);
  }
}

// Columns of several heads and queries, every alignment of the first key, every range of columns.
TEST(RowDropout, DropsPairsOfATile) {
  const Dropout d(0.3, 0xfeedbeef12345678);
  constexpr int kWidth = 48;
  DropoutColumns columns;
  for (std::uint32_t i = 0; i < kWidth; ++i) columns.query[i] = 1000 + i % 17, columns.plane[i] = 5 + i / 17;
  Numbers numbers(3);
  for (const RowKernels* table : available_row_tables())
    for (std::uint32_t key = 64; key < 69; ++key)
      for (const int n : {1, 2, 3, 4, 5, 31, 64})
        for (const auto& [first, last] : {std::pair{0, 48}, {0, 16}, {16, 48}, {4, 8}}) {
          SCOPED_TRACE(std::string(table->name) + ", key " + std::to_string(key) + ", n " + std::to_string(n));
          Guarded<float> s(n * kWidth, 1);
          Guarded<std::uint16_t> pairs((n + 1) / 2 * 2 * kWidth, 2);
          numbers.fill(s);
          numbers.fill_bf16(pairs);
          const std::vector<float> before = s.copy();
          const std::vector<std::uint16_t> pairs_before = pairs.copy();
          table->drop_pairs(key_of(d), columns, key, n, first, last, kWidth, 1.25f, s.data());
          table->drop_bf16_pairs(key_of(d), columns, key, n, first, last, kWidth, pairs.data());
          for (int row = 0; row < (n + 1) / 2 * 2; ++row)
            for (int i = 0; i < kWidth; ++i) {
              const bool inside = i >= first && i < last && row < n;
              const bool keeps =
                  !inside || d.keeps_pair(columns.plane[i], columns.query[i], key + static_cast<std::uint32_t>(row));
              const auto at = static_cast<std::size_t>(row * kWidth + i);
              const auto pair = static_cast<std::size_t>((row / 2 * kWidth + i) * 2 + row % 2);
              if (row < n) {
                ASSERT_EQ(s[row * kWidth + i], before[at] * (keeps ? (inside ? 1.25f : 1.0f) : 0.0f))
                    << row << ' ' << i;
              }
              ASSERT_EQ(pairs.data()[pair], keeps ? pairs_before[pair] : 0) << row << ' ' << i;
            }
          EXPECT_TRUE(s.intact() && pairs.intact());
        }
}

}  // namespace
}  // namespace qkv::test
