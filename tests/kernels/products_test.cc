// SPDX-License-Identifier: Apache-2.0
// The f32 products of a tile. Each is one chain of multiply-adds in a fixed order, so it is computed here one element
// at a time and must agree in every bit; and it must be close to the product in f64.
#include "kernels/tables.h"

namespace qkv::test {
namespace {

// One element of a product: the chain in the table's arithmetic, and in f64, with the sum of absolute values.
struct Chain {
  const KernelTable& table;
  float value = 0;
  double exact = 0, size = 0;

  void start(float x) { value = x, exact = double{x}, size = std::abs(exact); }
  void add(float a, float b) {
    value = multiply_add(table, a, b, value);
    exact += double{a} * double{b};
    size += std::abs(double{a} * double{b});
  }
  bool is(float found, std::int64_t terms) const {
    const double tolerance = static_cast<double>(terms + 1) * 0x1p-23 * size;
    return same_bits(found, value) && std::abs(double{found} - exact) <= tolerance;
  }
};

// d head dimensions and n keys, for every range of vectors.
void check_scores(const KernelTable& table, const TileKernels& tile, std::int64_t d, int n, Numbers& numbers) {
  const int shift = static_cast<int>(d) * 7 + n, width = tile.width;
  const std::int64_t ldk = d + n % 3;
  Guarded<float> k(n ? (n - 1) * ldk + d : 0, shift % 16), qt(d * width, (shift + 5) % 16);  // [n][ldk], [d][width]
  numbers.fill(k);
  numbers.fill(qt);
  std::vector<Chain> expected(static_cast<std::size_t>(n * width), Chain{table});  // [n][width]
  for (int j = 0; j < n; ++j)
    for (int i = 0; i < width; ++i)
      for (std::int64_t c = 0; c < d; ++c)
        expected[static_cast<std::size_t>(j * width + i)].add(k[j * ldk + c], qt[c * width + i]);
  for (const Part v : parts(tile)) {
    Guarded<float> s(n * width, (shift + 11) % 16, kUntouched), max(width, (shift + 2) % 16, -1.0f);
    tile.scores(k.data(), ldk, qt.data(), d, n, v.rows, v.first, v.last, s.data(), max.data());
    ASSERT_TRUE(k.intact() && qt.intact() && s.intact() && max.intact());
    for (int i = 0; i < width; ++i) {
      if (i >= v.rows) {
        for (int j = 0; j < n; ++j) ASSERT_TRUE(std::isfinite(s[j * width + i]));
        continue;
      }
      const bool inside = i >= v.first * tile.lanes && i < v.last * tile.lanes;
      float top = -1.0f;
      for (int j = 0; j < n; ++j) {
        const float found = s[j * width + i];
        if (inside) {
          ASSERT_TRUE(expected[static_cast<std::size_t>(j * width + i)].is(found, d)) << "key " << j << " query " << i;
          top = std::max(top, found);
        } else {
          ASSERT_EQ(found, kUntouched) << "key " << j << " query " << i;
        }
      }
      ASSERT_EQ(max[i], top) << "query " << i;
    }
  }
}

TEST(Scores, EverySizeBelowTwoVectorsAndEveryMisalignment) {
  each_tile([](const KernelTable& table, const TileKernels& tile) {
    Numbers numbers(1);
    for (std::int64_t d = 1; d <= 2 * widest_lanes(table) + 1; ++d)
      for (int n = 0; n <= 2 * widest_lanes(table) + 1; n += d % 5 == 0 ? 1 : 3) {
        SCOPED_TRACE("d " + std::to_string(d) + " keys " + std::to_string(n));
        ASSERT_NO_FATAL_FAILURE(check_scores(table, tile, d, n, numbers));
      }
    for (const std::int64_t d : {1, 15, 16, 31, 33, 128})
      ASSERT_NO_FATAL_FAILURE(check_scores(table, tile, d, kKeyTile - static_cast<int>(d % 2), numbers));
  });
}

TEST(Scores, OnlyTheMaximumIgnoresNaN) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    constexpr int kKeys = 35;
    Guarded<float> k(kKeys, 1, 1.0f), qt(tile.width, 1, 2.0f), s(kKeys * tile.width, 1), max(tile.width, 1, -kInf);
    k[4] = k[34] = kNaN;
    k[2] = -kInf;
    tile.scores(k.data(), 1, qt.data(), 1, kKeys, tile.width, 0, tile.width / tile.lanes, s.data(), max.data());
    for (int i = 0; i < tile.width; ++i) {
      ASSERT_EQ(max[i], 2.0f);
      ASSERT_TRUE(std::isnan(s[4 * tile.width + i]) && std::isnan(s[34 * tile.width + i]));
      ASSERT_EQ(s[2 * tile.width + i], -kInf);
    }
  });
}

void check_accumulate(const KernelTable& table, const TileKernels& tile, std::int64_t d_v, int n, Numbers& numbers) {
  const int shift = static_cast<int>(d_v) * 3 + n, width = tile.width;
  const std::int64_t ldv = d_v + n % 3;
  Guarded<float> p(n * width, shift % 16), v(n ? (n - 1) * ldv + d_v : 0, (shift + 3) % 16);  // [n][width], [n][ldv]
  numbers.fill(p);
  numbers.fill(v);
  for (const bool fresh : {false, true}) {
    std::vector<Chain> expected(static_cast<std::size_t>(d_v * width), Chain{table});  // [d_v][width]
    std::vector<float> before(expected.size());
    for (std::size_t e = 0; e < expected.size(); ++e) {
      before[e] = numbers.normal();
      if (!fresh) expected[e].start(before[e]);
      const auto c = static_cast<std::int64_t>(e) / width, i = static_cast<std::int64_t>(e) % width;
      for (int j = 0; j < n; ++j) expected[e].add(p[j * width + i], v[j * ldv + c]);
    }
    for (const Part range : parts(tile)) {
      Guarded<float> ot(d_v * width, (shift + 7) % 16);  // [d_v][width]
      std::copy(before.begin(), before.end(), ot.data());
      tile.accumulate(p.data(), v.data(), ldv, d_v, n, range.rows, range.first, range.last, fresh, ot.data());
      ASSERT_TRUE(p.intact() && v.intact() && ot.intact());
      for (std::int64_t e = 0; e < d_v * width; ++e) {
        if (e % width >= range.rows) {
          ASSERT_TRUE(std::isfinite(ot[e]));
          continue;
        }
        const bool inside = e % width >= range.first * tile.lanes && e % width < range.last * tile.lanes;
        const auto at = static_cast<std::size_t>(e);
        ASSERT_TRUE(inside ? expected[at].is(ot[e], n) : same_bits(ot[e], before[at]))
            << "dimension " << e / width << " query " << e % width << " fresh " << fresh;
      }
    }
  }
}

TEST(Accumulate, EverySizeBelowTwoVectorsAndEveryMisalignment) {
  each_tile([](const KernelTable& table, const TileKernels& tile) {
    Numbers numbers(2);
    for (std::int64_t d_v = 8; d_v <= 88; d_v += 8)
      for (int n = 0; n <= 2 * widest_lanes(table) + 1; n += d_v % 32 == 8 ? 1 : 4) {
        SCOPED_TRACE("d_v " + std::to_string(d_v) + " keys " + std::to_string(n));
        ASSERT_NO_FATAL_FAILURE(check_accumulate(table, tile, d_v, n, numbers));
      }
    ASSERT_NO_FATAL_FAILURE(check_accumulate(table, tile, 128, kKeyTile, numbers));
  });
}

void check_outer(const KernelTable& table, const TileKernels& tile, std::int64_t cols, int n, int rows,
                 Numbers& numbers) {
  const int shift = static_cast<int>(cols) + n * 5 + rows * 3, width = tile.width;
  const std::int64_t ldx = cols + rows % 4, ldc = cols + n % 2 * 3;
  Guarded<float> p(n * width, shift % 16);                                 // [n][width]
  Guarded<float> x(rows ? (rows - 1) * ldx + cols : 0, (shift + 9) % 16);  // [rows][ldx]
  Guarded<float> c(n ? (n - 1) * ldc + cols : 0, (shift + 1) % 16);        // [n][ldc]
  numbers.fill(p);
  numbers.fill(x);
  numbers.fill(c);
  const std::vector<float> before = c.copy();
  tile.outer(p.data(), x.data(), ldx, cols, n, rows, c.data(), ldc);
  ASSERT_TRUE(p.intact() && x.intact() && c.intact());
  for (std::int64_t e = 0; e < c.size(); ++e) {
    const std::int64_t j = e / ldc, col = e % ldc;
    Chain chain{table};
    chain.start(before[static_cast<std::size_t>(e)]);
    if (col < cols)
      for (int i = 0; i < rows; ++i) chain.add(p[j * width + i], x[i * ldx + col]);
    ASSERT_TRUE(chain.is(c[e], rows)) << "key " << j << " column " << col;
  }
}

TEST(Outer, EverySizeBelowTwoVectorsAndEveryMisalignment) {
  each_tile([](const KernelTable& table, const TileKernels& tile) {
    Numbers numbers(3);
    const auto check = [&](std::int64_t cols, int n, int rows) {
      SCOPED_TRACE("columns " + std::to_string(cols) + " keys " + std::to_string(n) + " rows " + std::to_string(rows));
      ASSERT_NO_FATAL_FAILURE(check_outer(table, tile, cols, n, rows, numbers));
    };
    for (int vectors = 1; vectors <= 9; ++vectors)
      for (int n = 0; n <= 17; ++n) check(vectors * tile.lanes, n, (n + vectors) % (tile.width + 1));
    for (int rows = 0; rows <= tile.width; ++rows) check((rows % 7 + 1) * tile.lanes, 5 + rows % 3, rows);
    check(128, kKeyTile, tile.width);
  });
}

TEST(ColumnDots, MatchTheChainOfScores) {
  each_tile([](const KernelTable& table, const TileKernels& tile) {
    Numbers numbers(4);
    for (std::int64_t d = 1; d <= 2 * tile.lanes + 1; ++d) {
      const int shift = static_cast<int>(d);
      Guarded<float> a(d * tile.width, shift % 16), b(d * tile.width, (shift + 3) % 16);  // [d][width]
      Guarded<float> dots(tile.width, (shift + 5) % 16);
      numbers.fill(a);
      numbers.fill(b);
      tile.column_dots(a.data(), b.data(), d, dots.data());
      ASSERT_TRUE(a.intact() && b.intact() && dots.intact());
      for (int i = 0; i < tile.width; ++i) {
        Chain chain{table};
        for (std::int64_t c = 0; c < d; ++c) chain.add(a[c * tile.width + i], b[c * tile.width + i]);
        ASSERT_TRUE(chain.is(dots[i], d)) << "d " << d << " query " << i;
      }
    }
  });
}

}  // namespace
}  // namespace qkv::test
