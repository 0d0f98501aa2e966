// SPDX-License-Identifier: Apache-2.0
// Exponentials, their sums, and the rescaling that keeps them in range.
#include "kernels/tables.h"

namespace qkv::test {
namespace {

constexpr double kExp2Error = 2e-7;

// Compares found with 2^x, for any x.
::testing::AssertionResult is_exp2(float found, float x, double error = kExp2Error) {
  const double exact = std::exp2(double{x});
  bool good = std::abs(double{found} - exact) <= error * exact + 0x1p-149;  // denormals are exact to their last bit
  if (std::isnan(x)) good = std::isnan(found);
  if (exact > double{kMax} * (1 - error) && std::isinf(found)) good = true;
  if (x == -kInf || x < -151) good = found == 0;
  if (x == 0) good = found == 1;
  if (good) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "2^" << x << " = " << exact << "; found " << found;
}

TEST(Exp2, RelativeErrorOverADenseSweep) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    const int width = tile.width, vectors = width / tile.lanes;
    std::vector<float> s(static_cast<std::size_t>(kKeyTile * width)), x;
    std::vector<float> m(static_cast<std::size_t>(width), 0.0f), l(m);
    double worst = 0;
    constexpr int kPoints = 600000;
    for (int point = 0; point < kPoints;) {
      for (float& value : s)  // -126 ... 127.9, and every fourth number near 0
        value = static_cast<float>(-126 + 253.9 * std::min(point, kPoints) / kPoints) * (point % 4 ? 1.0f : 0.01f),
        ++point;
      x = s;
      tile.exponentials(1.0f, kKeyTile, 0, vectors, m.data(), l.data(), s.data());
      for (std::size_t e = 0; e < s.size(); ++e)
        worst = std::max(worst, std::abs(double{s[e]} / std::exp2(double{x[e]}) - 1));
    }
    ::testing::Test::RecordProperty("largest relative error", std::to_string(worst));
    EXPECT_LE(worst, kExp2Error);
    EXPECT_GT(worst, 1e-9);  // guards against an empty sweep
  });
}

TEST(Exp2, EdgesOfTheRange) {
  const float edges[] = {-kInf,   -kMax,    -1e9f, -200.0f, -151.5f, -150.0f, -149.0f,   -148.5f,    -127.0f,
                         -126.0f, -125.99f, -0.5f, -0.0f,   0.0f,    0.5f,    1.0f,      127.0f,     127.99999f,
                         128.0f,  1e9f,     kMax,  kInf,    kNaN,    -kNaN,   kDenormal, -kDenormal, 1e-30f};
  each_tile([&](const KernelTable&, const TileKernels& tile) {
    for (const float x : edges)
      for (const Vectors v : vector_ranges(tile)) {
        Guarded<float> s(tile.width, 1, x), m(tile.width, 2, 0.0f), l(tile.width, 3, 0.0f);
        tile.exponentials(1.0f, 1, v.first, v.last, m.data(), l.data(), s.data());
        for (int i = 0; i < tile.width; ++i) {
          const bool inside = i >= v.first * tile.lanes && i < v.last * tile.lanes;
          ASSERT_TRUE(inside ? is_exp2(s[i], x) : ::testing::AssertionResult(same(s[i], x)));
          ASSERT_TRUE(same(l[i], inside ? s[i] : 0.0f)) << x;
        }
      }
  });
}

TEST(Exponentials, EveryNumberOfKeysAndRangeOfVectors) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(5);
    for (int n = 0; n <= 2 * tile.lanes + 1; ++n)
      for (const Vectors v : vector_ranges(tile)) {
        const float unit = numbers.uniform(0.01, 3);
        Guarded<float> s(n * tile.width, n % 16), m(tile.width, (n + 1) % 16), l(tile.width, (n + 2) % 16);
        numbers.fill(s, 3);
        numbers.fill(m);
        for (int i = 0; i < tile.width; ++i) l[i] = numbers.uniform(0, 1);
        m[tile.width - 1] = -kInf;  // no key so far
        if (n > 2) s[2 * tile.width] = -kInf, s[2 * tile.width + tile.width - 1] = kNaN;
        const std::vector<float> x = s.copy(), sum = l.copy(), reference = m.copy();
        tile.exponentials(unit, n, v.first, v.last, m.data(), l.data(), s.data());
        ASSERT_TRUE(s.intact() && m.intact() && l.intact());
        for (int i = 0; i < tile.width; ++i) {
          const auto at = static_cast<std::size_t>(i);
          const bool inside = i >= v.first * tile.lanes && i < v.last * tile.lanes;
          const float top = reference[at] == -kInf ? 0 : reference[at];
          float total = sum[at];
          for (int j = 0; j < n; ++j) {
            const float score = x[static_cast<std::size_t>(j * tile.width + i)], found = s[j * tile.width + i];
            if (!inside) {
              ASSERT_TRUE(same(found, score));
              continue;
            }
            ASSERT_TRUE(is_exp2(found, (score - top) * unit)) << "key " << j << " query " << i;
            total += found;  // in key order
          }
          ASSERT_TRUE(same(l[i], total)) << "query " << i;
          ASSERT_TRUE(same_bits(m[i], reference[at]));
        }
      }
  });
}

TEST(ColumnMax, IgnoresNaN) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(6);
    for (int n = 0; n <= 9; ++n)
      for (const Vectors v : vector_ranges(tile)) {
        Guarded<float> s(n * tile.width, n % 16), max(tile.width, (n + 3) % 16, -0.5f);
        numbers.fill(s);
        for (int j = 0; j < n; ++j) s[j * tile.width + j % tile.width] = j % 2 ? kNaN : -kInf;
        tile.column_max(s.data(), n, v.first, v.last, max.data());
        ASSERT_TRUE(s.intact() && max.intact());
        for (int i = 0; i < tile.width; ++i) {
          float top = -0.5f;
          if (i >= v.first * tile.lanes && i < v.last * tile.lanes)
            for (int j = 0; j < n; ++j)
              if (s[j * tile.width + i] > top) top = s[j * tile.width + i];
          ASSERT_EQ(max[i], top) << "query " << i << " keys " << n;
        }
      }
  });
}

TEST(Rescale, EachQueryMovesByItsOwnRule) {
  // running maximum, maximum of the tile, and whether the running maximum moves with unit 1: if more than 8 higher
  const struct {
    float old, top;
    bool moves;
  } cases[] = {{0, 8, false},        {0, 8.001f, true},   {0, -100, false},     {-kInf, -kInf, false}, {-kInf, 3, true},
               {-kInf, -kMax, true}, {-kMax, kMax, true}, {1, kNaN, false},     {5, kInf, true},       {-20, 5, true},
               {kMax, kMax, false},  {kInf, kInf, false}, {0, kDenormal, false}};
  each_tile([&](const KernelTable&, const TileKernels& tile) {
    const int width = tile.width;
    constexpr std::int64_t kDimensions = 5;
    for (std::size_t first = 0; first < std::size(cases); ++first) {
      Numbers numbers(7 + first);
      Guarded<float> top(width, 1), m(width, 2), l(width, 3), ot(kDimensions * width, 5);
      numbers.fill(l);
      numbers.fill(ot);
      const std::vector<float> sums = l.copy(), values = ot.copy();
      const auto of = [&](int i) { return cases[(first + static_cast<std::size_t>(i)) % std::size(cases)]; };
      for (int i = 0; i < width; ++i) top[i] = of(i).top, m[i] = of(i).old;
      tile.rescale(1.0f, top.data(), kDimensions, m.data(), l.data(), ot.data());
      ASSERT_TRUE(top.intact() && m.intact() && l.intact() && ot.intact());
      for (int i = 0; i < width; ++i) {
        const float old = of(i).old, tile_top = of(i).top;
        const bool moves = of(i).moves;
        ASSERT_TRUE(same(m[i], moves ? tile_top : old)) << old << " " << tile_top;
        const double factor = moves ? std::exp2(double{old} - double{tile_top}) : 1;
        const auto near = [&](float found, float before) {
          return moves ? std::abs(found - before * factor) <= 3e-7 * std::abs(before * factor) + 0x1p-149
                       : same_bits(found, before);
        };
        ASSERT_TRUE(near(l[i], sums[static_cast<std::size_t>(i)])) << old << " " << tile_top << " " << l[i];
        for (std::int64_t c = 0; c < kDimensions; ++c)
          ASSERT_TRUE(near(ot[c * width + i], values[static_cast<std::size_t>(c * width + i)]))
              << old << " " << tile_top;
      }
    }
  });
}

TEST(Rescale, WorksWithoutSumsOfValues) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Guarded<float> top(tile.width, 0, 20.0f), m(tile.width, 0, 0.0f), l(tile.width, 0, 1.0f);
    tile.rescale(2.0f, top.data(), 64, m.data(), l.data(), nullptr);
    for (int i = 0; i < tile.width; ++i) {
      ASSERT_EQ(m[i], 20.0f);
      ASSERT_TRUE(is_exp2(l[i], -40.0f));
    }
  });
}

TEST(Merge, IsTheSoftmaxOfBothSplits) {
  const float tops[] = {0, -kInf, 3, -150, 70, -kMax, 1e-30f, kMax};
  each_tile([&](const KernelTable&, const TileKernels& tile) {
    const int width = tile.width;
    constexpr std::int64_t kDimensions = 3;
    constexpr float kUnit = 0.7f;
    for (std::size_t shift = 0; shift < 64; ++shift) {
      Numbers numbers(8 + shift);
      Guarded<float> m(width, 1), l(width, 2), ot(kDimensions * width, 3);
      Guarded<float> split_m(width, 5), split_l(width, 6), split_ot(kDimensions * width, 7);
      for (auto* memory : {&l, &ot, &split_l, &split_ot}) numbers.fill(*memory);
      for (int i = 0; i < width; ++i) {
        const std::size_t pair = shift + static_cast<std::size_t>(i);
        m[i] = tops[pair % 8], split_m[i] = tops[pair / 8 % 8];
        if (m[i] == -kInf) l[i] = ot[i] = ot[width + i] = ot[2 * width + i] = 0;
        if (split_m[i] == -kInf) split_l[i] = split_ot[i] = split_ot[width + i] = split_ot[2 * width + i] = 0;
      }
      const std::vector<float> m0 = m.copy(), l0 = l.copy(), ot0 = ot.copy();
      tile.merge(kUnit, kDimensions, split_m.data(), split_l.data(), split_ot.data(), m.data(), l.data(), ot.data());
      ASSERT_TRUE(m.intact() && l.intact() && ot.intact() && split_m.intact() && split_l.intact() && split_ot.intact());
      for (int i = 0; i < width; ++i) {
        const float old = m0[static_cast<std::size_t>(i)], later = split_m[i], top = std::max(old, later);
        ASSERT_EQ(m[i], top);
        const auto factor = [&](float x) {
          return x == -kInf ? 0 : std::exp2(double{static_cast<float>(x - top) * kUnit});
        };
        const auto near = [&](float found, float a, float b) {
          const double x = a * factor(old), y = b * factor(later);
          return std::abs(found - (x + y)) <= 4e-7 * (std::abs(x) + std::abs(y)) + 0x1p-140;
        };
        ASSERT_TRUE(near(l[i], l0[static_cast<std::size_t>(i)], split_l[i])) << old << " " << later << " " << l[i];
        for (std::int64_t e = i; e < kDimensions * width; e += width)
          ASSERT_TRUE(near(ot[e], ot0[static_cast<std::size_t>(e)], split_ot[e]))
              << old << " " << later << " " << ot[e];
      }
    }
  });
}

TEST(Merge, KeepsNaN) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Guarded<float> m(tile.width, 0, 1.0f), l(tile.width, 0, kNaN), ot(tile.width, 0, kNaN),
        split_m(tile.width, 0, 2.0f);
    Guarded<float> split_l(tile.width, 0, 1.0f), split_ot(tile.width, 0, 1.0f);
    tile.merge(1.0f, 1, split_m.data(), split_l.data(), split_ot.data(), m.data(), l.data(), ot.data());
    for (int i = 0; i < tile.width; ++i) ASSERT_TRUE(std::isnan(l[i]) && std::isnan(ot[i]));
  });
}

TEST(BackwardSoftmax, ProbabilitiesAndTheirGradients) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(9);
    for (int n = 0; n <= 9; ++n)
      for (const Vectors v : vector_ranges(tile)) {
        const float unit = numbers.uniform(0.05, 2);
        Guarded<float> s(n * tile.width, n), dp(n * tile.width, n + 1), lse(tile.width, n + 2),
            delta(tile.width, n + 3);
        for (auto* memory : {&s, &dp, &lse, &delta}) numbers.fill(*memory, 2);
        for (int j = 0; j < n; ++j) {  // masked, whatever the gradient; visible with NaN
          const int i = (j * 5) % tile.width;
          s[j * tile.width + i] = j % 3 == 2 ? kNaN : -kInf;
          if (j % 3 == 1) dp[j * tile.width + i] = kNaN;
        }
        lse[tile.width / 2] = -kInf;  // sees no key
        for (int j = 0; j < n; ++j) s[j * tile.width + tile.width / 2] = -kInf;
        const std::vector<float> scores = s.copy(), gradients = dp.copy();
        tile.backward_softmax(unit, n, v.first, v.last, lse.data(), delta.data(), s.data(), dp.data());
        ASSERT_TRUE(s.intact() && dp.intact() && lse.intact() && delta.intact());
        for (std::int64_t e = 0; e < n * tile.width; ++e) {
          const std::int64_t i = e % tile.width;
          const float score = scores[static_cast<std::size_t>(e)], gradient = gradients[static_cast<std::size_t>(e)];
          if (i < v.first * tile.lanes || i >= v.last * tile.lanes) {
            ASSERT_TRUE(same(s[e], score) && same(dp[e], gradient));
          } else if (score == -kInf) {
            ASSERT_TRUE(s[e] == 0 && dp[e] == 0) << "key " << e / tile.width << " query " << i;
          } else {
            ASSERT_TRUE(is_exp2(s[e], (score - lse[i]) * unit)) << "key " << e / tile.width << " query " << i;
            ASSERT_TRUE(same(dp[e], s[e] * (gradient - delta[i]))) << "key " << e / tile.width << " query " << i;
          }
        }
      }
  });
}

}  // namespace
}  // namespace qkv::test
