// SPDX-License-Identifier: Apache-2.0
#include "linalg/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "core/float_types.h"
#include "core/parallel.h"
#include "core/random.h"
#include "linalg/gemm.h"

namespace qkv {
namespace {

// `count` of a million normal numbers, starting at a position that depends on the stream.
template <class T>
std::vector<T> normals(std::int64_t count, std::uint64_t stream) {
  static const std::vector<float> numbers = [] {
    const Random random(7);
    std::vector<float> values(1000003);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.normal(i));
    return values;
  }();
  std::vector<T> values(static_cast<std::size_t>(count));
  std::size_t from = stream * 123457;
  for (T& x : values) {
    const float number = numbers[from++ % numbers.size()];
    if constexpr (std::is_same_v<T, double>)
      x = static_cast<double>(number);
    else
      x = narrow<T>(number);
  }
  return values;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

// The element of W as stored in the compute dtype.
template <class S, class T>
double rounded(T w) {
  if constexpr (std::is_same_v<S, double>)
    return w;
  else
    return static_cast<double>(widen(narrow<S>(w)));
}

struct Shape {
  std::int64_t rows, in, out;
};
const Shape kShapes[] = {{1, 1, 1},      {3, 5, 7},     {17, 96, 40}, {33, 257, 70},
                         {70, 192, 576}, {5, 1500, 96}, {9, 64, 1031}};

template <class S>
class WeightsOf : public testing::Test {};
using Operands = testing::Types<float, bf16, double>;
TYPED_TEST_SUITE(WeightsOf, Operands);

TYPED_TEST(WeightsOf, ProductsOfMatricesSideBySide) {
  using S = TypeParam;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  for (const auto& [rows, in, out] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << in << " x " << out);
    const std::int64_t left = (out + 2) / 3, right = out - left, padded = out + 3;
    const auto a = normals<T>(in * left, 1), b = normals<T>(in * right, 2), bias = normals<T>(padded, 3);
    std::vector<double> w(static_cast<std::size_t>(in * padded));  // [in, padded]
    for (std::int64_t i = 0; i < in; ++i)
      for (std::int64_t j = 0; j < out; ++j)
        w[static_cast<std::size_t>(i * padded + j)] = rounded<S>(
            j < left ? a[static_cast<std::size_t>(i * left + j)] : b[static_cast<std::size_t>(i * right + j - left)]);
    Weights weights(dtype_of<S>, in, padded);
    std::vector<MatrixPart<T>> parts{{a.data(), left}, {b.data(), right}};
    if (right == 0) parts.pop_back();
    weights.prepare<T>(parts, true);
    const auto x = normals<S>(rows * in, 4), dy = normals<S>(rows * padded, 5);
    std::vector<T> y(static_cast<std::size_t>(rows * padded)), dx(static_cast<std::size_t>(rows * in));
    weights.forward(rows, x.data(), bias.data(), y.data());
    weights.backward_input(rows, dy.data(), dx.data());
    const double unit = std::is_same_v<S, double> ? 1e-14 : 1e-6;
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t j = 0; j < padded; ++j) {
        double sum = static_cast<double>(bias[static_cast<std::size_t>(j)]), size = 1 + std::abs(sum);
        for (std::int64_t i = 0; i < in; ++i) {
          const double term = static_cast<double>(widen(x[static_cast<std::size_t>(r * in + i)])) *
                              w[static_cast<std::size_t>(i * padded + j)];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(static_cast<double>(y[static_cast<std::size_t>(r * padded + j)]), sum, unit * size);
      }
      for (std::int64_t i = 0; i < in; ++i) {
        double sum = 0, size = 1;
        for (std::int64_t j = 0; j < padded; ++j) {
          const double term = static_cast<double>(widen(dy[static_cast<std::size_t>(r * padded + j)])) *
                              w[static_cast<std::size_t>(i * padded + j)];
          sum += term;
          size += std::abs(term);
        }
        ASSERT_NEAR(static_cast<double>(dx[static_cast<std::size_t>(r * in + i)]), sum, unit * size);
      }
    }
  }
}

TYPED_TEST(WeightsOf, TransposedSourceGivesTheSameBits) {
  using S = TypeParam;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  const std::int64_t rows = 37, in = 96, out = 131, padded = 192;
  const auto w = normals<T>(in * out, 1);
  std::vector<T> turned(w.size());  // [out, in]
  for (std::int64_t i = 0; i < in; ++i)
    for (std::int64_t j = 0; j < out; ++j)
      turned[static_cast<std::size_t>(j * in + i)] = w[static_cast<std::size_t>(i * out + j)];
  Weights plain(dtype_of<S>, in, padded), transposed(dtype_of<S>, in, padded);
  const MatrixPart<T> part{w.data(), out};
  plain.prepare<T>({&part, 1}, true);
  transposed.prepare_transposed<T>(turned.data(), out, true);
  const auto x = normals<S>(rows * in, 2), dy = normals<S>(rows * padded, 3);
  std::vector<T> y1(static_cast<std::size_t>(rows * padded)), y2 = y1, dx1(static_cast<std::size_t>(rows * in)),
                                                              dx2 = dx1;
  plain.forward(rows, x.data(), static_cast<const T*>(nullptr), y1.data());
  transposed.forward(rows, x.data(), static_cast<const T*>(nullptr), y2.data());
  plain.backward_input(rows, dy.data(), dx1.data());
  transposed.backward_input(rows, dy.data(), dx2.data());
  EXPECT_TRUE(same_bits(y1, y2));
  EXPECT_TRUE(same_bits(dx1, dx2));
}

// Including the shapes of ANDREA-120M's layers.
TYPED_TEST(WeightsOf, RowsHaveTheSameBitsAloneAndAmongOthersAtAnyThreadCount) {
  using S = TypeParam;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  std::vector<Shape> shapes = {{130, 96, 40}, {64, 257, 70}, {40, 1500, 96}};
  if (!std::is_same_v<S, double>) shapes.insert(shapes.end(), {{300, 768, 2304}, {128, 3072, 768}});
  for (const auto& [rows, in, out] : shapes) {
    const auto w = normals<T>(in * out, 1);
    const auto x = normals<S>(rows * in, 2);
    Weights weights(dtype_of<S>, in, out);
    const MatrixPart<T> part{w.data(), out};
    weights.prepare<T>({&part, 1}, false);
    std::vector<T> expected(static_cast<std::size_t>(rows * out));
    set_num_threads(1);
    weights.forward(rows, x.data(), static_cast<const T*>(nullptr), expected.data());
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      std::vector<T> found(expected.size());
      for (std::int64_t r = 0, count = 1; r < rows; r += count, count = count * 2 + 1) {
        count = std::min(count, rows - r);
        weights.forward(count, x.data() + r * in, static_cast<const T*>(nullptr), found.data() + r * out);
      }
      EXPECT_TRUE(same_bits(found, expected)) << rows << " x " << in << " x " << out << ", threads " << threads;
    }
    set_num_threads(0);
  }
}

TEST(Weights, PackedProductsMatchPlainOnesBitForBit) {
  const std::int64_t rows = 50, in = 768, out = 300;
  const auto w = normals<float>(in * out, 1), x = normals<float>(rows * in, 2);
  Weights weights(DType::f32, in, out);
  const MatrixPart<float> part{w.data(), out};
  weights.prepare<float>({&part, 1}, false);
  std::vector<float> packed(static_cast<std::size_t>(rows * out)), plain = packed;
  weights.forward<float, float, float>(rows, x.data(), nullptr, packed.data());
  gemm(false, false, rows, out, in, x.data(), in, w.data(), out, 0.0f, plain.data(), out);
  EXPECT_TRUE(same_bits(packed, plain));
}

TEST(Weights, RoundedResultsAreTheRoundedF32Results) {
  const std::int64_t rows = 21, in = 96, out = 200;
  const auto w = normals<float>(in * out, 1), bias = normals<float>(out, 3);
  const auto x = normals<bf16>(rows * in, 2);
  Weights weights(DType::bf16, in, out);
  const MatrixPart<float> part{w.data(), out};
  weights.prepare<float>({&part, 1}, true);
  std::vector<float> wide(static_cast<std::size_t>(rows * out));
  std::vector<bf16> narrowed(wide.size());
  weights.forward(rows, x.data(), bias.data(), wide.data());
  weights.forward(rows, x.data(), bias.data(), narrowed.data());
  for (std::size_t i = 0; i < wide.size(); ++i) ASSERT_EQ(narrowed[i].bits, narrow<bf16>(wide[i]).bits);
}

TYPED_TEST(WeightsOf, OuterProducts) {
  using S = TypeParam;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  for (const auto& [k, m, n] : {Shape{0, 5, 3}, Shape{1, 1, 1}, Shape{17, 40, 33}, Shape{70, 257, 20}}) {
    const std::int64_t lda = m + 3, ldb = n + 1, ldc = n + 2;
    const auto a = normals<S>(k * lda, 1), b = normals<S>(k * ldb, 2);
    const std::vector<T> before = normals<T>(m * ldc, 3);
    for (const bool add : {false, true}) {
      std::vector<T> c = before;
      outer_product(m, n, k, a.data(), lda, b.data(), ldb, add, c.data(), ldc);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < ldc; ++j) {
          const auto at = static_cast<std::size_t>(i * ldc + j);
          double sum = add || j >= n ? static_cast<double>(before[at]) : 0.0, size = 1 + std::abs(sum);
          for (std::int64_t p = 0; j < n && p < k; ++p) {
            const double term = static_cast<double>(widen(a[static_cast<std::size_t>(p * lda + i)])) *
                                static_cast<double>(widen(b[static_cast<std::size_t>(p * ldb + j)]));
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(static_cast<double>(c[at]), sum, 1e-6 * size);
        }
    }
  }
}

// The long reduction is one that a library's own threads would split.
TYPED_TEST(WeightsOf, OuterProductsHaveTheSameBitsAtAnyThreadCount) {
  using S = TypeParam;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  std::vector<Shape> shapes = {{16384, 64, 64}};
  if (!std::is_same_v<S, double>) shapes.push_back({1024, 768, 384});
  for (const Shape& shape : shapes) {
    // Not a structured binding: Clang 14 cannot capture one in a lambda.
    const std::int64_t k = shape.rows, m = shape.in, n = shape.out;
    const auto a = normals<S>(k * m, 1), b = normals<S>(k * n, 2);
    std::vector<T> expected(static_cast<std::size_t>(m * n));
    set_num_threads(1);
    outer_product(m, n, k, a.data(), m, b.data(), n, false, expected.data(), n);
    for (const int threads : {2, 8}) {
      set_num_threads(threads);
      std::vector<std::vector<T>> found(4, std::vector<T>(expected.size()));
      parallel_for(4, [&](std::int64_t i) {
        outer_product(m, n, k, a.data(), m, b.data(), n, false, found[static_cast<std::size_t>(i)].data(), n);
      });
      for (const auto& c : found) EXPECT_TRUE(same_bits(c, expected));
      outer_product(m, n, k, a.data(), m, b.data(), n, false, found[0].data(), n);
      EXPECT_TRUE(same_bits(found[0], expected));
    }
    set_num_threads(0);
  }
}

TEST(Weights, OtherDTypesAreRefused) { EXPECT_THROW(Weights(DType::f16, 4, 4), std::invalid_argument); }

}  // namespace
}  // namespace qkv
