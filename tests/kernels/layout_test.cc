// SPDX-License-Identifier: Apache-2.0
// Transposes, conversions, and the search for non-finite elements.
#include "kernels/tables.h"

namespace qkv::test {
namespace {

template <class Check>
void each_table(const Check& check) {
  for (const KernelTable* table : available_tables()) {
    SCOPED_TRACE(std::string(table->name));
    check(*table);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(TransposeIn, EveryNumberOfRowsAndColumns) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(20);
    for (int rows = 0; rows <= tile.width; ++rows)
      for (std::int64_t d = 1; d <= 2 * tile.lanes + 1; ++d) {
        const std::int64_t ldx = d + rows % 3;
        const int shift = rows + static_cast<int>(d);
        Guarded<float> x(rows ? (rows - 1) * ldx + d : 0, shift % 16), t(d * tile.width, (shift + 3) % 16, kNaN);
        numbers.fill(x);
        tile.transpose_in(x.data(), ldx, rows, d, t.data());
        ASSERT_TRUE(x.intact() && t.intact());
        for (std::int64_t e = 0; e < t.size(); ++e) {
          const std::int64_t i = e % tile.width, c = e / tile.width;
          ASSERT_TRUE(same_bits(t[e], i < rows ? x[i * ldx + c] : 0.0f)) << "rows " << rows << " d " << d;
        }
      }
  });
}

TEST(TransposeOut, EveryNumberOfRowsAndColumns) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(21);
    for (int rows = 0; rows <= tile.width; ++rows)
      for (std::int64_t d = 1; d <= 2 * tile.lanes + 1; ++d) {
        const std::int64_t ldx = d + rows % 3;
        const int shift = rows + static_cast<int>(d);
        Guarded<float> t(d * tile.width, shift % 16), factor(tile.width, (shift + 1) % 16);
        Guarded<float> x(rows ? (rows - 1) * ldx + d : 0, (shift + 3) % 16, kUntouched);
        numbers.fill(t);
        numbers.fill(factor);
        if (rows > 0) t[0] = -0.0f, factor[rows - 1] = kNaN;
        tile.transpose_out(t.data(), rows, d, factor.data(), x.data(), ldx);
        ASSERT_TRUE(x.intact() && t.intact() && factor.intact());
        for (std::int64_t e = 0; e < x.size(); ++e) {
          const std::int64_t i = e / ldx, c = e % ldx;
          const float expected = c < d ? t[c * tile.width + i] * factor[i] + 0.0f : kUntouched;
          ASSERT_TRUE(same(x[e], expected)) << "rows " << rows << " d " << d << " row " << i << " column " << c;
        }
      }
  });
}

// All 65,536 numbers, in pieces of every length below two vectors and at every misalignment.
template <class Widen, class Expected>
void check_widen(const Widen& convert, const Expected& expected) {
  int length = 1;
  for (int from = 0; from < 65536; from += length, length = length % 37 + 1) {
    const int n = std::min(length, 65536 - from);
    Guarded<std::uint16_t> x(n, length % 32);
    Guarded<float> y(n, (length + 5) % 16);
    for (int i = 0; i < n; ++i) x[i] = static_cast<std::uint16_t>(from + i);
    convert(x.data(), n, y.data());
    ASSERT_TRUE(x.intact() && y.intact());
    for (int i = 0; i < n; ++i) ASSERT_TRUE(same(y[i], expected(x[i]))) << std::hex << x[i] << " " << y[i];
  }
}

TEST(Widen, EveryBf16) {
  each_table(
      [](const KernelTable& table) { check_widen(table.widen_bf16, [](std::uint16_t x) { return widen(bf16{x}); }); });
}
TEST(Widen, EveryF16) {
  each_table(
      [](const KernelTable& table) { check_widen(table.widen_f16, [](std::uint16_t x) { return widen(f16{x}); }); });
}

TEST(Narrow, AgreesWithTheStorageType) {
  each_table([](const KernelTable& table) {
    std::vector<float> hard;
    for (std::uint32_t high = 0; high < 65536; ++high)  // every bf16, and the values around halfway to the next one
      for (const std::uint32_t low : {0x0000u, 0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
        hard.push_back(std::bit_cast<float>(high << 16 | low));
    std::int64_t n = 0;
    for (std::size_t from = 0; from < hard.size(); from += static_cast<std::size_t>(n)) {
      n = std::min<std::int64_t>(static_cast<std::int64_t>(from % 67) + 1,
                                 static_cast<std::int64_t>(hard.size() - from));
      Guarded<float> x(n, static_cast<int>(n % 16));
      Guarded<std::uint16_t> y(n, static_cast<int>(n % 32));
      std::memcpy(x.data(), hard.data() + from, static_cast<std::size_t>(n) * sizeof(float));
      table.narrow_bf16(x.data(), n, y.data());
      ASSERT_TRUE(x.intact() && y.intact());
      for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(y[i], narrow<bf16>(x[i]).bits) << x[i];
    }
  });
}

TEST(AllFinite, FindsANonFiniteElement) {
  each_table([](const KernelTable& table) {
    Numbers numbers(22);
    for (std::int64_t cols = 0; cols <= 35; ++cols)
      for (const int rows : {0, 1, 3}) {
        const std::int64_t ldx = cols + 2;
        Guarded<float> x(rows ? (rows - 1) * ldx + cols : 0, static_cast<int>(cols % 16));
        Guarded<std::uint16_t> half(x.size(), static_cast<int>(cols % 16));
        const auto finite = [&] {
          const bool wide = table.all_finite(x.data(), ldx, rows, cols);
          EXPECT_EQ(table.all_finite_bf16(half.data(), ldx, rows, cols), wide);
          return wide;
        };
        const auto set = [&](std::int64_t at, float value) { x[at] = value, half[at] = narrow<bf16>(value).bits; };
        for (std::int64_t e = 0; e < x.size(); ++e) set(e, numbers.normal());
        for (int i = 0; i + 1 < rows; ++i) set(i * ldx + cols, kNaN), set(i * ldx + cols + 1, kInf);  // between rows
        ASSERT_TRUE(finite());
        for (int i = 0; i < rows; ++i)
          for (std::int64_t c = 0; c < cols; ++c)
            for (const float bad : {kNaN, -kInf, kInf, -1e38f}) {
              set(i * ldx + c, bad);
              ASSERT_EQ(finite(), std::isfinite(bad)) << "row " << i << " column " << c << " of " << cols;
              set(i * ldx + c, 1e38f);
            }
        ASSERT_TRUE(finite());
      }
  });
}

TEST(Interleave, EverySizeBelowTwoVectors) {
  each_table([](const KernelTable& table) {
    if (!table.interleave) {
      for (int i = 0; i < table.tile_count; ++i) EXPECT_EQ(table.tiles[i].bf16, nullptr);
      return;
    }
    for (int rows = 0; rows <= 5; ++rows)
      for (std::int64_t cols = 1; cols <= 70; ++cols)
        for (const std::int64_t padded : {cols, (cols + 15) / 16 * 16}) {
          const std::int64_t ldx = cols + rows % 2;
          Guarded<std::uint16_t> x(rows ? (rows - 1) * ldx + cols : 0, static_cast<int>(cols % 32));
          Guarded<std::uint16_t> pairs((rows + 1) / 2 * padded * 2, static_cast<int>(padded % 32), 0xabcd);
          for (std::int64_t e = 0; e < x.size(); ++e) x[e] = static_cast<std::uint16_t>(e + 1);
          table.interleave(x.data(), ldx, rows, cols, padded, pairs.data());
          ASSERT_TRUE(x.intact() && pairs.intact());
          for (std::int64_t e = 0; e < pairs.size(); ++e) {
            const std::int64_t row = e / (padded * 2) * 2 + e % 2, c = e / 2 % padded;
            ASSERT_EQ(pairs[e], row < rows && c < cols ? x[row * ldx + c] : 0) << rows << "x" << cols << " at " << e;
          }
        }
  });
}

}  // namespace
}  // namespace qkv::test
