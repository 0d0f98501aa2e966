// SPDX-License-Identifier: Apache-2.0
// Norms of rows, forward and backward, compared with plain loops in double, in every set.
#include <cmath>

#include "kernels/rows.h"

namespace qkv::test {
namespace {

constexpr float kEps = 1e-5f;
constexpr std::int64_t kRows = 3;

struct NormCase {
  RowNorm kind;
  bool gain, bias;
  std::int64_t d;
};

template <class Check>
void each_norm(const Check& check) {
  for (const std::int64_t d : kRowSizes)
    for (const RowNorm kind : {RowNorm::rmsnorm, RowNorm::layernorm})
      for (int parts = 0; parts < 4; ++parts) {
        SCOPED_TRACE("d " + std::to_string(d) + (kind == RowNorm::rmsnorm ? ", rmsnorm" : ", layernorm") + ", parts " +
                     std::to_string(parts));
        check(NormCase{kind, (parts & 1) != 0, (parts & 2) != 0, d});
        if (::testing::Test::HasFatalFailure()) return;
      }
}

// The inputs x, delta, dy [rows, d], gain, bias [d] and the outputs, for one case and storage type.
template <class S>
struct NormArrays {
  NormArrays(const NormCase& c, bool hostile)
      : x(kRows * c.d, 1),
        delta(kRows * c.d, 3),
        middle(kRows * c.d, 5),
        gain(c.d, 7),
        bias(c.d, 2),
        statistics(2 * kRows, 1),
        dx(kRows * c.d, 2),
        gain_sums(c.d, 1),
        bias_sums(c.d, 3),
        y(kRows * c.d, 1),
        dy(kRows * c.d, 3) {
    Numbers numbers(static_cast<std::uint64_t>(c.d) + 17);
    fill_stored(numbers, x, hostile);
    fill_stored(numbers, delta, hostile);
    fill_stored(numbers, gain, hostile);
    fill_stored(numbers, bias, hostile);
    fill_stored(numbers, dy, hostile);
    fill_stored(numbers, dx);
  }
  bool intact() {
    return middle.intact() && statistics.intact() && dx.intact() && gain_sums.intact() && bias_sums.intact() &&
           y.intact();
  }
  Guarded<float> x, delta, middle, gain, bias, statistics, dx, gain_sums, bias_sums;
  Guarded<S> y, dy;
};

template <class S>
std::vector<float> run_norm(const RowKernels& table, const NormCase& c, NormArrays<S>& a) {
  const StoredRowKernels<S>& k = table.of<S>();
  float* gain = c.gain ? a.gain.data() : nullptr;
  float* bias = c.bias ? a.bias.data() : nullptr;
  std::vector<float> all;
  k.norm_forward(c.kind, kEps, kRows, c.d, a.x.data(), gain, bias, a.y.data(), a.statistics.data());
  append(all, widened(a.y));
  append(all, widened(a.statistics));
  k.residual_norm_forward(c.kind, kEps, kRows, c.d, a.x.data(), a.delta.data(), gain, bias, a.middle.data(), a.y.data(),
                          a.statistics.data());
  append(all, widened(a.middle));
  append(all, widened(a.y));
  k.norm_backward_input(c.kind, kRows, c.d, a.middle.data(), gain, a.statistics.data(), a.dy.data(), true, a.dx.data());
  append(all, widened(a.dx));
  k.norm_backward_input(c.kind, kRows, c.d, a.middle.data(), gain, a.statistics.data(), a.dy.data(), false,
                        a.dx.data());
  append(all, widened(a.dx));
  const std::int64_t half = c.d / 2;  // columns in two parts
  for (const auto& [first, count] : {std::pair{std::int64_t{0}, half}, std::pair{half, c.d - half}})
    k.norm_parameter_sums(kRows, c.d, first, count, a.middle.data(), a.statistics.data(), a.dy.data(),
                          a.gain_sums.data() + first, a.bias_sums.data() + first);
  append(all, widened(a.gain_sums));
  append(all, widened(a.bias_sums));
  EXPECT_TRUE(a.intact());
  return all;
}

TEST(RowNorms, GiveTheSameBitsInAllSets) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const bool hostile : {false, true})
      each_norm([&](const NormCase& c) {
        expect_same_in_all_sets([&](const RowKernels& table) {
          NormArrays<S> arrays(c, hostile);
          return run_norm(table, c, arrays);
        });
      });
  });
}

// One row in double, computed from the definitions.
struct ExactRow {
  std::vector<double> middle, y, dx, dgain;
};
template <class S>
ExactRow exact_row(const NormCase& c, NormArrays<S>& a, std::int64_t row, const std::vector<float>& middle) {
  const double d = static_cast<double>(c.d);
  const std::int64_t at = row * c.d;
  const auto x = [&](std::int64_t j) { return static_cast<double>(middle[static_cast<std::size_t>(at + j)]); };
  const auto dy = [&](std::int64_t j) { return static_cast<double>(widen(a.dy[at + j])); };
  const auto g = [&](std::int64_t j) { return c.gain ? static_cast<double>(a.gain[j]) : 1.0; };
  double mean = 0, variance = 0, shift = 0, along = 0;
  for (std::int64_t j = 0; j < c.d; ++j) mean += x(j) / d;
  if (c.kind == RowNorm::rmsnorm) mean = 0;
  for (std::int64_t j = 0; j < c.d; ++j) variance += (x(j) - mean) * (x(j) - mean) / d;
  const double inverse = 1 / std::sqrt(variance + static_cast<double>(kEps));
  for (std::int64_t j = 0; j < c.d; ++j) {
    shift += dy(j) * g(j) / d;
    along += dy(j) * g(j) * (x(j) - mean) * inverse / d;
  }
  if (c.kind == RowNorm::rmsnorm) shift = 0;
  ExactRow exact;
  for (std::int64_t j = 0; j < c.d; ++j) {
    const double xhat = (x(j) - mean) * inverse;
    exact.middle.push_back(static_cast<double>(a.x[at + j]) + static_cast<double>(a.delta[at + j]));
    exact.y.push_back(xhat * g(j) + (c.bias ? static_cast<double>(a.bias[j]) : 0.0));
    exact.dx.push_back(inverse * (dy(j) * g(j) - shift - xhat * along));
    exact.dgain.push_back(dy(j) * xhat);
  }
  return exact;
}

TEST(RowNorms, MatchTheDefinition) {
  each_storage([](auto type) {
    using S = decltype(type);
    each_norm([&](const NormCase& c) {
      if (c.d < 15) return;  // a row of 1 has no deviation: its gradient is a difference of equal numbers
      NormArrays<S> a(c, false);
      run_norm(*available_row_tables().back(), c, a);
      std::vector<double> dgain(static_cast<std::size_t>(c.d)), dbias(static_cast<std::size_t>(c.d));
      for (std::int64_t row = 0; row < kRows; ++row) {
        const ExactRow exact = exact_row(c, a, row, widened(a.middle));
        for (std::int64_t j = 0; j < c.d; ++j) {
          const auto at = static_cast<std::size_t>(j);
          const std::int64_t i = row * c.d + j;
          ASSERT_NEAR(a.middle[i], exact.middle[at], 1e-6);
          ASSERT_NEAR(static_cast<double>(widen(a.y[i])), exact.y[at], tolerance<S>(exact.y[at], 2e-6));
          ASSERT_NEAR(a.dx[i], exact.dx[at], 4e-6) << j;
          dgain[at] += exact.dgain[at];
          dbias[at] += static_cast<double>(widen(a.dy[i]));
        }
      }
      for (std::int64_t j = 0; j < c.d; ++j) {
        ASSERT_NEAR(a.gain_sums[j], dgain[static_cast<std::size_t>(j)], 4e-6);
        ASSERT_NEAR(a.bias_sums[j], dbias[static_cast<std::size_t>(j)], 4e-6);
      }
    });
  });
}

TEST(RowNorms, WorkedByHand) {
  // (3, 4): mean of squares 12.5, and with eps 12.5 the deviation is 5. Layernorm of (1, 3): mean 2, deviation 1.
  const float x[] = {3, 4}, z[] = {1, 3}, gain[] = {5, 10}, bias[] = {1, -1};
  float y[2], statistics[2];
  for (const RowKernels* table : available_row_tables()) {
    table->f32.norm_forward(RowNorm::rmsnorm, 12.5f, 1, 2, x, gain, bias, y, statistics);
    EXPECT_FLOAT_EQ(y[0], 4);
    EXPECT_FLOAT_EQ(y[1], 7);
    EXPECT_EQ(statistics[0], 0);
    EXPECT_FLOAT_EQ(statistics[1], 0.2f);
    table->f32.norm_forward(RowNorm::layernorm, 0, 1, 2, z, nullptr, nullptr, y, statistics);
    EXPECT_EQ(y[0], -1);
    EXPECT_EQ(y[1], 1);
    EXPECT_EQ(statistics[0], 2);
  }
}

TEST(RowNorms, GradientsWorkInPlace) {
  for (const RowKernels* table : available_row_tables()) {
    NormCase c{RowNorm::layernorm, true, false, 33};
    NormArrays<float> a(c, false);
    run_norm(*table, c, a);
    const std::vector<float> expected = widened(a.dx);
    table->f32.norm_backward_input(c.kind, kRows, c.d, a.middle.data(), a.gain.data(), a.statistics.data(), a.dy.data(),
                                   false, a.dy.data());
    EXPECT_EQ(widened(a.dy), expected);
  }
}

TEST(RowSums, AddRowsInOrder) {
  // 2^24 + 1 - 2^24 + 1 in order is 1 in f32, and 2 in any order that adds the ones first.
  const float x[] = {0x1p24f, 9, 1, 9, -0x1p24f, 9, 1, 9};
  for (const RowKernels* table : available_row_tables()) {
    float sums[] = {0};
    table->f32.row_sums(4, 1, x, 2, sums);
    EXPECT_EQ(sums[0], 1);
    bf16 stored_x[8];
    table->half.from_f32(8, x, stored_x);
    float two[] = {0.5f, 1};
    table->half.row_sums(2, 2, stored_x, 4, two);
    EXPECT_EQ(two[1], 19);
  }
}

}  // namespace
}  // namespace qkv::test
