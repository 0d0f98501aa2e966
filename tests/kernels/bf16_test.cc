// SPDX-License-Identifier: Apache-2.0
// The bf16 kernels: products of bf16 are exact in f32, so their only error is the rounding of f32 sums; their
// exponential is within 1.05e-4 before rounding to bf16 (a fortieth of that rounding).
#include "kernels/tables.h"

namespace qkv::test {
namespace {

constexpr double kExp2ForBf16Error = 1.05e-4;
constexpr int kWidest = 16;  // lanes of the widest vector in a set with bf16 products

template <class Check>
void each_bf16_tile(const Check& check) {
  each_tile([&](const KernelTable&, const TileKernels& tile) {
    if (tile.bf16) check(tile, *tile.bf16);
  });
}

// A sum of products: its value in f64 and the sum of absolute values.
struct Sum {
  double exact = 0, size = 0;
  void start(float x) { exact = double{x}, size = std::abs(exact); }
  void add(std::uint16_t a, std::uint16_t b) {
    const double product = double{from_bf16(a)} * double{from_bf16(b)};
    exact += product;
    size += std::abs(product);
  }
  bool is(float found, std::int64_t terms) const {
    return std::abs(double{found} - exact) <= static_cast<double>(terms + 1) * 0x1p-24 * size + 0x1p-120;
  }
};

template <class Range>
bool inside(const TileKernels& tile, Range range, std::int64_t column) {
  return column >= range.first * tile.lanes && column < range.last * tile.lanes;
}

TEST(Bf16Scores, EverySizeBelowTwoVectors) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    Numbers numbers(30);
    const int width = tile.width;
    for (std::int64_t d_pairs = 1; d_pairs <= 2 * kWidest + 1; ++d_pairs)
      for (int n = 0; n <= kKeyTile; n += d_pairs % 7 == 0 ? 1 : (n < 2 * kWidest ? 5 : 29)) {
        const std::int64_t d = 2 * d_pairs, ldk = d + n % 3;
        const int shift = static_cast<int>(d_pairs) * 7 + n;
        Guarded<std::uint16_t> k(n ? (n - 1) * ldk + d : 0, shift % 32);  // [n][ldk]
        Guarded<std::uint16_t> qt(d * width, (shift + 5) % 16 * 2);       // [d_pairs][width][2]
        numbers.fill_bf16(k);
        numbers.fill_bf16(qt);
        for (const Part v : parts(tile)) {
          Guarded<float> s(n * width, (shift + 11) % 16, kUntouched), max(width, (shift + 2) % 16, -1.0f);
          bf16.scores(k.data(), ldk, qt.data(), d_pairs, n, v.rows, v.first, v.last, s.data(), max.data());
          ASSERT_TRUE(k.intact() && qt.intact() && s.intact() && max.intact());
          for (int i = 0; i < width; ++i) {
            float top = -1.0f;
            for (int j = 0; j < n; ++j) {
              const float found = s[j * width + i];
              if (i >= v.rows) {
                ASSERT_TRUE(std::isfinite(found));
                continue;
              }
              if (!inside(tile, v, i)) {
                ASSERT_EQ(found, kUntouched);
                continue;
              }
              Sum sum;
              for (std::int64_t c = 0; c < d; ++c) sum.add(k[j * ldk + c], qt[(c / 2 * width + i) * 2 + c % 2]);
              ASSERT_TRUE(sum.is(found, d)) << "d " << d << " keys " << n << " key " << j << " query " << i;
              top = std::max(top, found);
            }
            if (i < v.rows) {
              ASSERT_EQ(max[i], top);
            }
          }
        }
      }
  });
}

TEST(Bf16Exponentials, WithinTheStatedErrorOverADenseSweep) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    const int width = tile.width;
    std::vector<float> s(static_cast<std::size_t>(width)), m(s.size(), 0.0f), l;
    std::vector<std::uint16_t> pairs(s.size() * 2);
    double worst = 0;
    for (double from = -126; from < 127.9;) {
      for (float& x : s) x = static_cast<float>(from), from += 1e-3;
      l.assign(s.size(), 0.0f);
      bf16.exponentials(1.0f, 1, 0, width / tile.lanes, m.data(), l.data(), s.data(), pairs.data());
      for (std::size_t i = 0; i < s.size(); ++i) {
        worst = std::max(worst, std::abs(double{l[i]} / std::exp2(double{s[i]}) - 1));  // l is a single unrounded p
        if (l[i] >= 0x1p-126f) {
          ASSERT_EQ(pairs[2 * i], narrow<qkv::bf16>(l[i]).bits) << s[i];
        }
        ASSERT_EQ(pairs[2 * i + 1], 0);
      }
    }
    EXPECT_LE(worst, kExp2ForBf16Error);
    EXPECT_GT(worst, 1e-6);
  });
}

TEST(Bf16Exponentials, EdgesOfTheRange) {
  const struct {
    float x, p;
  } edges[] = {{-kInf, 0}, {-kMax, 0}, {-200, 0}, {-0.0f, 1}, {0, 1}, {1, 2}, {129, kInf}, {kInf, kInf}, {kNaN, kNaN}};
  each_bf16_tile([&](const TileKernels& tile, const Bf16TileKernels& bf16) {
    for (const auto [x, p] : edges) {
      Guarded<float> s(tile.width, 1, x), m(tile.width, 2, 0.0f), l(tile.width, 3, 0.0f);
      Guarded<std::uint16_t> pairs(2 * tile.width, 2, 0xabcd);
      bf16.exponentials(1.0f, 1, 0, tile.width / tile.lanes, m.data(), l.data(), s.data(), pairs.data());
      for (int i = 0; i < tile.width; ++i) {
        ASSERT_TRUE(same(l[i], p) && same(from_bf16(pairs[2 * i]), p)) << x << " " << l[i];
        ASSERT_EQ(pairs[2 * i + 1], 0);
      }
    }
  });
}

// With a single key, l is its probability; several keys must give the same ones, stored in pairs and summed in order.
TEST(Bf16Exponentials, EveryNumberOfKeysAndRangeOfVectors) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    Numbers numbers(31);
    const int width = tile.width;
    for (int n = 0; n <= 9; ++n)
      for (const Vectors v : vector_ranges(tile)) {
        Guarded<float> s(n * width, n), m(width, n + 1), l(width, n + 2, 0.25f);
        Guarded<std::uint16_t> pairs((n + 1) / 2 * width * 2, 2 * n, 0xabcd);
        numbers.fill(s, 3);
        numbers.fill(m);
        m[0] = -kInf;
        if (n > 1) s[width + width / 2] = -kInf;
        const std::vector<float> scores = s.copy();
        bf16.exponentials(0.8f, n, v.first, v.last, m.data(), l.data(), s.data(), pairs.data());
        ASSERT_TRUE(s.intact() && m.intact() && l.intact() && pairs.intact());
        ASSERT_EQ(s.copy(), scores);
        std::vector<float> total(static_cast<std::size_t>(width), 0.25f);
        for (int j = 0; j < n; ++j) {
          Guarded<float> one(width, 0, 0.0f);
          Guarded<std::uint16_t> alone(2 * width);
          bf16.exponentials(0.8f, 1, 0, width / tile.lanes, m.data(), one.data(), s.data() + j * width, alone.data());
          for (int i = 0; i < width; ++i) {
            const std::uint16_t found = pairs[(j / 2 * width + i) * 2 + j % 2];
            ASSERT_EQ(found, inside(tile, v, i) ? alone[2 * i] : 0xabcd)
                << "keys " << n << " key " << j << " query " << i;
            if (inside(tile, v, i)) total[static_cast<std::size_t>(i)] += one[i];
          }
        }
        for (int i = 0; i < width; ++i) {
          ASSERT_TRUE(same_bits(l[i], total[static_cast<std::size_t>(i)]));
          if (n % 2 && inside(tile, v, i)) {
            ASSERT_EQ(pairs[(n / 2 * width + i) * 2 + 1], 0);
          }
        }
      }
  });
}

TEST(Bf16Accumulate, EverySizeBelowTwoVectors) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    Numbers numbers(32);
    const int width = tile.width;
    for (std::int64_t d_v = 8; d_v <= 88; d_v += 8)
      for (int n = 0; n <= 2 * kWidest + 1; n += d_v % 32 == 8 ? 1 : 5) {
        const std::int64_t ldv = d_v + n % 3;
        const int shift = static_cast<int>(d_v) + n;
        Guarded<std::uint16_t> p(n * width * 2, shift % 16 * 2);                            // [n][width][2]
        Guarded<std::uint16_t> v(n ? ((n - 1) * ldv + d_v) * 2 : 0, (shift + 3) % 16 * 2);  // [n][ldv][2]
        numbers.fill_bf16(p);
        numbers.fill_bf16(v);
        for (const bool fresh : {false, true})
          for (const Part range : parts(tile)) {
            Guarded<float> ot(d_v * width, (shift + 7) % 16);
            numbers.fill(ot);
            const std::vector<float> before = ot.copy();
            bf16.accumulate(p.data(), v.data(), ldv, d_v, n, range.rows, range.first, range.last, fresh, ot.data());
            ASSERT_TRUE(p.intact() && v.intact() && ot.intact());
            for (std::int64_t e = 0; e < d_v * width; ++e) {
              const std::int64_t c = e / width, i = e % width;
              if (i >= range.rows) {
                ASSERT_TRUE(std::isfinite(ot[e]));
                continue;
              }
              Sum sum;
              if (!fresh) sum.start(before[static_cast<std::size_t>(e)]);
              for (int j = 0; j < 2 * n; ++j)
                sum.add(p[(j / 2 * width + i) * 2 + j % 2], v[(j / 2 * ldv + c) * 2 + j % 2]);
              ASSERT_TRUE(inside(tile, range, i) ? sum.is(ot[e], 2 * n)
                                                 : same_bits(ot[e], before[static_cast<std::size_t>(e)]))
                  << "d_v " << d_v << " pairs " << n << " dimension " << c << " query " << i;
            }
          }
      }
  });
}

TEST(Bf16AccumulateRows, EverySizeOfUnpairedRows) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    EXPECT_EQ(bf16.accumulate_rows != nullptr, tile.width <= 8);
    if (!bf16.accumulate_rows) return;
    Numbers numbers(35);
    const int width = tile.width;
    for (std::int64_t d = 1; d <= 70; ++d)
      for (int n = 0; n <= 9; n += d % 8 == 0 ? 1 : 3)
        for (int rows = 1; rows <= width; ++rows) {
          const std::int64_t ldv = d + n % 3, padded = (d + 7) / 8 * 8;
          const int shift = static_cast<int>(d) + n;
          Guarded<std::uint16_t> p((n + 1) / 2 * width * 2, shift % 16 * 2), v(n ? (n - 1) * ldv + d : 0, shift % 32);
          numbers.fill_bf16(p);
          numbers.fill_bf16(v);
          for (const bool fresh : {false, true}) {
            Guarded<float> ot(padded * width, shift % 16);
            numbers.fill(ot);
            const std::vector<float> before = ot.copy();
            bf16.accumulate_rows(p.data(), v.data(), ldv, d, n, rows, fresh, ot.data());
            ASSERT_TRUE(p.intact() && v.intact() && ot.intact());
            for (std::int64_t e = 0; e < padded * width; ++e) {
              const std::int64_t c = e / width, i = e % width;
              Sum sum;
              if (!fresh) sum.start(before[static_cast<std::size_t>(e)]);
              for (int j = 0; c < d && j < n; ++j) sum.add(p[(j / 2 * width + i) * 2 + j % 2], v[j * ldv + c]);
              ASSERT_TRUE(i < rows ? sum.is(ot[e], n) : std::isfinite(ot[e]))
                  << "d " << d << " keys " << n << " rows " << rows << " dimension " << c << " query " << i;
            }
          }
        }
  });
}

TEST(Bf16Outer, EverySizeBelowTwoVectors) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    Numbers numbers(33);
    const int width = tile.width;
    for (int vectors = 1; vectors <= 9; ++vectors)
      for (int n = 0; n <= 17; ++n) {
        const std::int64_t cols = vectors * tile.lanes, ldx = cols + n % 3, ldc = cols + n % 2;
        const int row_pairs = (n + vectors) % (width / 2 + 1);
        Guarded<std::uint16_t> p(n * width, n % 16 * 2);  // [n][width]
        Guarded<std::uint16_t> x(row_pairs ? ((row_pairs - 1) * ldx + cols) * 2 : 0, n % 16 * 2);
        Guarded<float> c(n ? (n - 1) * ldc + cols : 0, n % 16);
        numbers.fill_bf16(p);
        numbers.fill_bf16(x);
        numbers.fill(c);
        const std::vector<float> before = c.copy();
        bf16.outer(p.data(), x.data(), ldx, cols, n, row_pairs, c.data(), ldc);
        ASSERT_TRUE(p.intact() && x.intact() && c.intact());
        for (std::int64_t e = 0; e < c.size(); ++e) {
          const std::int64_t j = e / ldc, col = e % ldc;
          Sum sum;
          sum.start(before[static_cast<std::size_t>(e)]);
          if (col < cols)
            for (int i = 0; i < 2 * row_pairs; ++i) sum.add(p[j * width + i], x[(i / 2 * ldx + col) * 2 + i % 2]);
          ASSERT_TRUE(col < cols ? sum.is(c[e], 2 * row_pairs) : same_bits(c[e], before[static_cast<std::size_t>(e)]))
              << "columns " << cols << " keys " << n << " row pairs " << row_pairs << " at " << e;
        }
      }
  });
}

TEST(Bf16Round, RowsAndPairs) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    Numbers numbers(34);
    const int width = tile.width;
    const float special[] = {kNaN, kInf, -kInf, kMax, -0.0f, 1.00390625f, 1.01171875f, -3e38f};
    for (int n = 0; n <= 9; ++n)
      for (const Vectors v : vector_ranges(tile))
        for (const bool want_pairs : {true, false}) {
          Guarded<float> x(n * width, n);
          Guarded<std::uint16_t> rows(n * width, n, 0xabcd), pairs((n + 1) / 2 * width * 2, 2 * n, 0xabcd);
          numbers.fill(x);
          for (int j = 0; j < n; ++j) x[j * width + (j * 3 + n) % width] = special[(j + n) % 8];
          bf16.round(x.data(), n, v.first, v.last, rows.data(), want_pairs ? pairs.data() : nullptr);
          ASSERT_TRUE(x.intact() && rows.intact() && pairs.intact());
          for (int j = 0; j < n + n % 2; ++j)
            for (int i = 0; i < width; ++i) {
              const std::uint16_t rounded = j < n ? narrow<qkv::bf16>(x[j * width + i]).bits : std::uint16_t{0};
              const std::uint16_t expected = inside(tile, v, i) ? rounded : 0xabcd;
              if (j < n) {
                ASSERT_EQ(rows[j * width + i], expected) << x[j * width + i];
              }
              ASSERT_EQ(pairs[(j / 2 * width + i) * 2 + j % 2], want_pairs ? expected : 0xabcd);
            }
        }
  });
}

TEST(Bf16TransposePairs, EveryNumberOfRowsAndColumns) {
  each_bf16_tile([](const TileKernels& tile, const Bf16TileKernels& bf16) {
    const int width = tile.width;
    for (int rows = 0; rows <= width; ++rows)
      for (std::int64_t d_pairs = 1; d_pairs <= 2 * tile.lanes + 1; ++d_pairs) {
        const std::int64_t d = 2 * d_pairs, ldx = d + rows % 3;
        Guarded<std::uint16_t> x(rows ? (rows - 1) * ldx + d : 0, rows % 32), t(d * width, 2 * (rows % 16), 0xabcd);
        for (std::int64_t e = 0; e < x.size(); ++e) x[e] = static_cast<std::uint16_t>(e + 1);
        bf16.transpose_pairs(x.data(), ldx, rows, d_pairs, t.data());
        ASSERT_TRUE(x.intact() && t.intact());
        for (std::int64_t e = 0; e < t.size(); ++e) {
          const std::int64_t c = e / (2 * width) * 2 + e % 2, i = e / 2 % width;
          ASSERT_EQ(t[e], i < rows ? x[i * ldx + c] : 0) << "rows " << rows << " pairs " << d_pairs << " at " << e;
        }
      }
  });
}

}  // namespace
}  // namespace qkv::test
