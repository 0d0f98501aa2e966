// SPDX-License-Identifier: Apache-2.0
// The operations on scores between the product and the softmax.
#include <functional>

#include "kernels/tables.h"

namespace qkv::test {
namespace {

// Runs `change` on random scores mixed with the special ones above, for many sizes and every range of vectors, and
// compares each score in the range with expected(score, key, query); the others must not change.
using Change = std::function<void(const TileKernels&, int n, Vectors, float* s)>;
using Expected = std::function<bool(float found, float score, int key, int query)>;
void check_change(const TileKernels& tile, const Change& change, const Expected& expected) {
  const float special[] = {-kInf, kInf, kNaN, kMax, -kMax, kDenormal, -0.0f, 1e-20f, 30.0f, -0.64f};
  Numbers numbers(10);
  for (int n = 0; n <= 11; ++n)
    for (const Vectors v : vector_ranges(tile)) {
      Guarded<float> s(n * tile.width, n);
      numbers.fill(s, n % 2 ? 1.0f : 20.0f);
      for (int j = 0; j < n; ++j) s[j * tile.width + (j * 7 + n) % tile.width] = special[(n + j) % 10];
      const std::vector<float> before = s.copy();
      change(tile, n, v, s.data());
      ASSERT_TRUE(s.intact());
      for (int j = 0; j < n; ++j)
        for (int i = 0; i < tile.width; ++i) {
          const float found = s[j * tile.width + i], score = before[static_cast<std::size_t>(j * tile.width + i)];
          const bool inside = i >= v.first * tile.lanes && i < v.last * tile.lanes;
          ASSERT_TRUE(inside ? expected(found, score, j, i) : same(found, score))
              << "keys " << n << " key " << j << " query " << i << " score " << score << " found " << found;
        }
    }
}

TEST(Scale, IsOneProduct) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    check_change(
        tile, [](const TileKernels& t, int n, Vectors v, float* s) { t.scale(-0.3f, n, v.first, v.last, s); },
        [](float found, float score, int, int) { return same(found, score * -0.3f); });
  });
}

// Relative error of softcap, and the error of its slope, which is at most 1.
constexpr double kTanhError = 4e-7;

bool is_softcap(float found, float score, double cap) {
  if (std::isnan(score)) return std::isnan(found);
  const double exact = cap * std::tanh(double{score} / cap);
  return std::abs(double{found} - exact) <= kTanhError * std::abs(exact) + 0x1p-149 * std::max(1.0, cap);
}

TEST(Softcap, IsCapTimesTanh) {
  for (const float cap : {1.0f, 0.5f, 30.0f, 1e-30f, 1e30f})
    each_tile([cap](const KernelTable&, const TileKernels& tile) {
      SCOPED_TRACE("cap " + std::to_string(cap));
      Guarded<float> slope(16 * tile.width, 3, kUntouched);
      check_change(
          tile,
          [&](const TileKernels& t, int n, Vectors v, float* s) {
            t.softcap(cap, n, v.first, v.last, s, slope.data());
          },
          [&](float found, float score, int j, int i) {
            const double t = std::tanh(double{score} / double{cap});
            const float found_slope = slope[j * tile.width + i];
            if (std::isnan(score) ? !std::isnan(found_slope) : !(std::abs(found_slope - (1 - t * t)) <= 8e-7))
              return false;
            return is_softcap(found, score, double{cap});
          });
      EXPECT_TRUE(slope.intact());
      check_change(
          tile,
          [&](const TileKernels& t, int n, Vectors v, float* s) { t.softcap(cap, n, v.first, v.last, s, nullptr); },
          [&](float found, float score, int, int) { return is_softcap(found, score, double{cap}); });
    });
}

TEST(Softcap, RelativeErrorOverADenseSweep) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    std::vector<float> s(static_cast<std::size_t>(kKeyTile * tile.width)), x;
    double worst = 0;
    for (double from = -12; from < 12;) {
      for (float& value : s) value = static_cast<float>(from), from += 4e-4;
      x = s;
      tile.softcap(1.0f, kKeyTile, 0, tile.width / tile.lanes, s.data(), nullptr);
      for (std::size_t e = 0; e < s.size(); ++e)
        if (x[e] != 0) worst = std::max(worst, std::abs(double{s[e]} / std::tanh(double{x[e]}) - 1));
    }
    EXPECT_LE(worst, kTanhError);
    EXPECT_GT(worst, 1e-9);
  });
}

TEST(Alibi, SubtractsSlopeTimesDistance) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(11);
    Guarded<float> slopes(tile.width, 1), distances(tile.width, 2);
    numbers.fill(slopes);
    for (int i = 0; i < tile.width; ++i) distances[i] = static_cast<float>(numbers.below(40) - 30);
    check_change(
        tile,
        [&](const TileKernels& t, int n, Vectors v, float* s) {
          t.alibi(slopes.data(), distances.data(), n, v.first, v.last, s);
        },
        [&](float found, float score, int j, int i) {
          const float away = slopes[i] * std::abs(distances[i] + static_cast<float>(j));
          return same(found, score - away);
        });
    EXPECT_TRUE(slopes.intact() && distances.intact());
  });
}

TEST(Add, MinusInfinityMasksAnyScore) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(12);
    Guarded<float> bias(11 * tile.width, 1);
    numbers.fill(bias);
    for (std::int64_t e = 0; e < bias.size(); e += 3) bias[e] = e % 2 ? -kInf : -kMax;
    bias[1] = kNaN;
    check_change(
        tile, [&](const TileKernels& t, int n, Vectors v, float* s) { t.add(bias.data(), n, v.first, v.last, s); },
        [&](float found, float score, int j, int i) {
          const float b = bias[j * tile.width + i];
          return same(found, b == -kInf ? -kInf : score + b);
        });
    EXPECT_TRUE(bias.intact());
  });
}

TEST(Limit, KeepsOnlyTheRangeOfEachQuery) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(13);
    for (const int key : {0, 8, 40}) {
      Guarded<float> begin(tile.width, 1), end(tile.width, 2);
      for (int i = 0; i < tile.width; ++i)
        begin[i] = static_cast<float>(key + numbers.below(14) - 3),
        end[i] = static_cast<float>(key + numbers.below(14));
      check_change(
          tile,
          [&](const TileKernels& t, int n, Vectors v, float* s) {
            t.limit(begin.data(), end.data(), key, n, v.first, v.last, s);
          },
          [&](float found, float score, int j, int i) {
            const auto at = static_cast<float>(key + j);
            return same(found, at >= begin[i] && at < end[i] ? score : -kInf);
          });
      EXPECT_TRUE(begin.intact() && end.intact());
    }
  });
}

TEST(AllowedBits, AreUnsetExactlyForMinusInfinity) {
  each_tile([](const KernelTable&, const TileKernels& tile) {
    Numbers numbers(14);
    for (int n = 0; n <= 9; ++n) {
      Guarded<float> s(n * tile.width, n);
      Guarded<std::uint64_t> bits(n, 1);
      for (std::int64_t e = 0; e < s.size(); ++e) {
        const float any[] = {-kInf, -kInf, 0.0f, kInf, kNaN, -kMax};
        s[e] = any[numbers.below(6)];
      }
      tile.allowed_bits(s.data(), n, bits.data());
      ASSERT_TRUE(s.intact() && bits.intact());
      for (std::int64_t e = 0; e < s.size(); ++e)
        ASSERT_EQ(bits[e / tile.width] >> (e % tile.width) & 1, s[e] != -kInf) << "key " << e / tile.width;
    }
  });
}

}  // namespace
}  // namespace qkv::test
