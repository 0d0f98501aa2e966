// SPDX-License-Identifier: Apache-2.0
#include "linalg/gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "linalg/tile.h"

namespace qkv {
namespace {

using Floats = std::vector<float>;

// `count` of a million normal numbers, starting at a position that depends on the stream.
template <class T = float>
std::vector<T> normals(std::int64_t count, std::uint64_t stream) {
  static const std::vector<float> numbers = [] {
    const Random random(7);
    std::vector<float> values(1000003);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
    return values;
  }();
  std::vector<T> values(static_cast<std::size_t>(count));
  std::size_t from = stream * 123457;
  for (T& x : values) x = static_cast<T>(numbers[from++ % numbers.size()]);
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

struct Shape {
  std::int64_t m, n, k;
};
const Shape kShapes[] = {{1, 1, 1},      {3, 5, 7},       {1, 64, 33},   {17, 96, 40},
                         {64, 64, 4096}, {256, 192, 192}, {33, 257, 70}, {96, 24, 1500},
                         {2, 300, 2049}, {192, 768, 256}, {31, 16, 1025}};

template <class T>
T at(const std::vector<T>& x, bool transpose, std::int64_t ld, std::int64_t i, std::int64_t j) {
  return x[static_cast<std::size_t>(transpose ? j * ld + i : i * ld + j)];
}

// C of a product with every row `pad` elements longer than needed; the padding must not change.
template <class T>
std::vector<T> product(const Shape& s, bool ta, bool tb, T beta, std::int64_t pad = 0) {
  const std::int64_t lda = (ta ? s.m : s.k) + pad, ldb = (tb ? s.k : s.n) + pad, ldc = s.n + pad;
  // The same numbers for any padding: element (i, j) of the dense operand.
  const auto spread = [&](std::int64_t rows, std::int64_t cols, std::uint64_t stream) {
    const auto dense = normals<T>(rows * cols, stream);
    std::vector<T> wide(static_cast<std::size_t>(rows * (cols + pad)), T{77});
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < cols; ++j)
        wide[static_cast<std::size_t>(i * (cols + pad) + j)] = dense[static_cast<std::size_t>(i * cols + j)];
    return wide;
  };
  const auto a = spread(ta ? s.k : s.m, ta ? s.m : s.k, 1), b = spread(tb ? s.n : s.k, tb ? s.k : s.n, 2);
  auto c = spread(s.m, s.n, 3);
  if (beta == T{0})
    for (std::int64_t i = 0; i < s.m; ++i)
      for (std::int64_t j = 0; j < s.n; ++j)
        c[static_cast<std::size_t>(i * ldc + j)] = std::numeric_limits<T>::quiet_NaN();
  gemm(ta, tb, s.m, s.n, s.k, a.data(), lda, b.data(), ldb, beta, c.data(), ldc);
  std::vector<T> dense;
  for (std::int64_t i = 0; i < s.m; ++i) {
    for (std::int64_t j = 0; j < ldc; ++j) {
      const T x = c[static_cast<std::size_t>(i * ldc + j)];
      if (j < s.n)
        dense.push_back(x);
      else
        EXPECT_EQ(x, T{77});
    }
  }
  return dense;
}

template <class T>
void check_against_definition(double tolerance) {
  for (const Shape& s : kShapes)
    for (int flags = 0; flags < 4; ++flags)
      for (T beta : {T{0}, T{1}, T{0.5}}) {
        const bool ta = flags & 1, tb = flags & 2;
        const auto c = product<T>(s, ta, tb, beta);
        const auto a = normals<T>(s.m * s.k, 1), b = normals<T>(s.k * s.n, 2), before = normals<T>(s.m * s.n, 3);
        for (std::int64_t i = 0; i < s.m; i += 1 + s.m / 5)
          for (std::int64_t j = 0; j < s.n; ++j) {
            double want = beta == T{0} ? 0.0 : double{beta} * before[static_cast<std::size_t>(i * s.n + j)];
            for (std::int64_t p = 0; p < s.k; ++p)
              want += double{at(a, ta, ta ? s.m : s.k, i, p)} * at(b, tb, tb ? s.k : s.n, p, j);
            ASSERT_NEAR(c[static_cast<std::size_t>(i * s.n + j)], want, tolerance * std::sqrt(double(s.k)))
                << s.m << "x" << s.n << "x" << s.k << " " << ta << tb << " beta " << beta;
          }
      }
}

TEST(Gemm, EqualsItsDefinitionF32) { check_against_definition<float>(1e-5); }
TEST(Gemm, EqualsItsDefinitionF64) { check_against_definition<double>(1e-14); }

TEST(Gemm, StridesChangeNothing) {
  for (const Shape& s : kShapes)
    for (int flags = 0; flags < 4; ++flags) {
      EXPECT_TRUE(
          same_bits(product<float>(s, flags & 1, flags & 2, 1.0f), product<float>(s, flags & 1, flags & 2, 1.0f, 3)));
      EXPECT_TRUE(
          same_bits(product<double>(s, flags & 1, flags & 2, 0.0), product<double>(s, flags & 1, flags & 2, 0.0, 3)));
    }
}

TEST(Gemm, SameBitsAtAnyThreadCount) {
  const Shape more[] = {{64, 64, 16384},  {384, 257, 8192}, {768, 768, 1024}, {1, 4096, 768},
                        {1024, 64, 4096}, {192, 4096, 256}, {16, 16, 1024},   {48, 2304, 1000}};
  std::vector<Shape> shapes(std::begin(kShapes), std::end(kShapes));
  shapes.insert(shapes.end(), std::begin(more), std::end(more));
  for (const Shape& s : shapes)
    for (int flags = 0; flags < 4; ++flags) {
      set_num_threads(1);
      const auto one = product<float>(s, flags & 1, flags & 2, 0.0f);
      const auto one_added = product<float>(s, flags & 1, flags & 2, 1.0f);
      for (int threads : {2, 4, 8}) {
        set_num_threads(threads);
        EXPECT_TRUE(same_bits(one, product<float>(s, flags & 1, flags & 2, 0.0f)))
            << s.m << "x" << s.n << "x" << s.k << " " << flags << " threads " << threads;
      }
      EXPECT_TRUE(same_bits(one_added, product<float>(s, flags & 1, flags & 2, 1.0f)));
      std::vector<Floats> inside(3);
      parallel_for(3, [&](std::int64_t i) {
        inside[static_cast<std::size_t>(i)] = product<float>(s, flags & 1, flags & 2, 0.0f);
      });
      for (const Floats& c : inside) EXPECT_TRUE(same_bits(one, c));
    }
  set_num_threads(0);
}

// Token-by-token decode needs this: a row's bits do not depend on the rows around it.
TEST(Gemm, RowsDoNotDependOnEachOther) {
  const Shape layers[] = {{0, 192, 192}, {0, 768, 192}, {0, 192, 768}, {0, 257, 64},
                          {0, 96, 24},   {0, 13, 1537}, {0, 4096, 384}};
  for (const Shape& s : layers)
    for (bool trans_b : {false, true}) {
      const std::int64_t rows = 130;
      const auto a = normals(rows * s.k, 1), b = normals(s.k * s.n, 2);
      Floats full(static_cast<std::size_t>(rows * s.n));
      gemm(false, trans_b, rows, s.n, s.k, a.data(), s.k, b.data(), trans_b ? s.k : s.n, 0.0f, full.data(), s.n);
      for (std::int64_t m : {1, 2, 3, 5, 8, 16, 17, 31, 64, 65}) {
        const std::int64_t first = rows - m - 1;
        Floats part(static_cast<std::size_t>(m * s.n));
        gemm(false, trans_b, m, s.n, s.k, a.data() + first * s.k, s.k, b.data(), trans_b ? s.k : s.n, 0.0f, part.data(),
             s.n);
        EXPECT_EQ(std::memcmp(part.data(), full.data() + first * s.n, part.size() * sizeof(float)), 0)
            << m << " rows, " << s.n << "x" << s.k << (trans_b ? " transposed" : "");
      }
    }
}

TEST(Gemm, AddingToCIsOneMoreAddition) {
  for (const Shape& s : kShapes) {
    if (s.k > 1024) continue;  // where terms may be summed in parts
    const auto before = normals(s.m * s.n, 3);
    const auto plain = product<float>(s, true, false, 0.0f), added = product<float>(s, true, false, 1.0f);
    for (std::size_t i = 0; i < plain.size(); ++i) ASSERT_EQ(added[i], plain[i] + before[i]);
  }
}

template <class T>
void check_empty_sizes() {
  std::vector<T> c{1, 2};
  for (const bool trans_b : {false, true}) {
    gemm(false, trans_b, 0, 2, 3, static_cast<T*>(nullptr), 3, static_cast<T*>(nullptr), 3, T{0}, c.data(), 2);
    gemm(false, trans_b, 2, 0, 3, static_cast<T*>(nullptr), 3, static_cast<T*>(nullptr), 3, T{0}, c.data(), 2);
    gemm(false, trans_b, 1, 2, 0, static_cast<T*>(nullptr), 1, static_cast<T*>(nullptr), 2, T{1}, c.data(), 2);
  }
  EXPECT_EQ(c, (std::vector<T>{1, 2}));
  gemm(false, false, 1, 2, 0, static_cast<T*>(nullptr), 1, static_cast<T*>(nullptr), 2, T{0}, c.data(), 2);
  EXPECT_EQ(c, (std::vector<T>{0, 0}));
}

TEST(Gemm, EmptySizes) {
  check_empty_sizes<float>();
  check_empty_sizes<double>();
}

TEST(Gemm, SeveralThreadsAtOnce) {
  const Shape s{33, 65, 129};
  const auto want = product<float>(s, false, true, 0.0f);
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < wrong.size(); ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) wrong[t] += !same_bits(want, product<float>(s, false, true, 0.0f));
    });
  for (std::thread& t : threads) t.join();
  for (int w : wrong) EXPECT_EQ(w, 0);
}

// The guarantees hold for oneDNN's "brg" products and for our own tiles; a shape that runs on anything else breaks
// them.
TEST(Gemm, EveryShapeRunsOnTheSameImplementation) {
  const std::string kind = gemm_implementation(false, false, 64, 64, 64).substr(0, 4);
  std::cout << "products run on " << gemm_implementation(false, false, 64, 64, 64) << "\n";
  EXPECT_TRUE(kind == "brg:" || kind == "tile") << kind;
  for (const Shape& s : kShapes)
    for (int flags = 0; flags < 4; ++flags)
      EXPECT_EQ(gemm_implementation(flags & 1, flags & 2, s.m, s.n, s.k).substr(0, 4), kind)
          << s.m << "x" << s.n << "x" << s.k << " " << flags;
}

TEST(Tile, EachSumsInOrderFromZero) {
  std::vector<Tile> tiles{tile_portable};
  if (best_tile() != tile_portable) tiles.push_back(best_tile());
  for (const Tile tile : tiles)
    for (std::int64_t k : {0, 1, 2, 7, 64, 301}) {
      const auto a = normals(k * kTileRows, 1), b = normals(k * kTileColumns, 2);
      Floats c(static_cast<std::size_t>(kTileRows * kTileColumns), 9.0f);
      tile(k, a.data(), b.data(), c.data());
      for (std::int64_t i = 0; i < kTileRows; ++i)
        for (std::int64_t j = 0; j < kTileColumns; ++j) {
          float separate = 0, fused = 0;
          for (std::int64_t p = 0; p < k; ++p) {
            const float x = a[static_cast<std::size_t>(p * kTileRows + i)];
            const float y = b[static_cast<std::size_t>(p * kTileColumns + j)];
            separate += x * y;
            fused = std::fma(x, y, fused);
          }
          EXPECT_EQ(c[static_cast<std::size_t>(i * kTileColumns + j)], tile == tile_portable ? separate : fused);
        }
    }
}

}  // namespace
}  // namespace qkv
