// SPDX-License-Identifier: Apache-2.0
// Conversions, sums, biases, rotary positions and AdamW, in every set.
#include <cmath>

#include "kernels/rows.h"

namespace qkv::test {
namespace {

TEST(RowConversions, MatchTheStorageTypes) {
  // All 65536 bf16 numbers round-trip; numbers between them round to nearest, including denormals.
  for (const RowKernels* table : available_row_tables()) {
    SCOPED_TRACE(std::string(table->name));
    Guarded<bf16> all(65536, 1), back(65536, 3);
    Guarded<float> wide(65536, 1);
    for (std::int64_t i = 0; i < 65536; ++i) all[i].bits = static_cast<std::uint16_t>(i);
    table->half.to_f32(65536, all.data(), wide.data());
    table->half.from_f32(65536, wide.data(), back.data());
    for (std::int64_t i = 0; i < 65536; ++i) {
      ASSERT_TRUE(same_bits(wide[i], widen(all[i])));
      ASSERT_EQ(back[i].bits, narrow<bf16>(wide[i]).bits);
      ASSERT_TRUE(back[i].bits == all[i].bits || std::isnan(wide[i]));
    }
    for (const std::uint32_t low : {0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      for (std::int64_t i = 0; i < 65536; ++i)
        wide[i] = std::bit_cast<float>(static_cast<std::uint32_t>(i) << 16 | low);
      table->half.from_f32(65536, wide.data(), back.data());
      for (std::int64_t i = 0; i < 65536; ++i) ASSERT_EQ(back[i].bits, narrow<bf16>(wide[i]).bits) << i << ' ' << low;
    }
    EXPECT_TRUE(wide.intact() && back.intact());
  }
}

TEST(RowArrays, AddAndAccumulateAreSingleOperations) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const RowKernels* table : available_row_tables())
      for (const bool hostile : {false, true})
        for (const std::int64_t size : kRowSizes) {
          SCOPED_TRACE(std::string(table->name) + ", size " + std::to_string(size));
          Numbers numbers(static_cast<std::uint64_t>(size));
          Guarded<S> a(size, 1), b(size, 2), sum(size, 3);
          Guarded<float> x(size, 2), total(size, 3);
          for (Guarded<S>* one : {&a, &b}) fill_stored(numbers, *one, hostile);
          fill_stored(numbers, x, hostile);
          for (std::int64_t i = 0; i < size; ++i) total[i] = x[i];
          const StoredRowKernels<S>& k = table->of<S>();
          k.add(size, a.data(), b.data(), sum.data());
          k.accumulate(size, a.data(), total.data());
          for (std::int64_t i = 0; i < size; ++i) {
            ASSERT_TRUE(same(widen(sum[i]), stored<S>(widen(a[i]) + widen(b[i]))));
            ASSERT_TRUE(same(total[i], x[i] + widen(a[i])));
          }
          EXPECT_TRUE(sum.intact() && total.intact());
        }
  });
}

template <class S>
std::vector<float> turned(const RowKernels& table, std::int64_t head_dim, bool hostile, bool back) {
  constexpr std::int64_t kRows = 2, kHeads = 3;
  const std::int64_t ldx = kHeads * head_dim + 5;
  Numbers numbers(static_cast<std::uint64_t>(head_dim));
  Guarded<S> x(kRows * ldx, 1);
  Guarded<float> cosines(kRows * head_dim / 2, 1), sines(kRows * head_dim / 2, 3);
  fill_stored(numbers, x, hostile);
  for (std::int64_t i = 0; i < cosines.size(); ++i) {
    cosines[i] = static_cast<float>(std::cos(0.1 * static_cast<double>(i)));
    sines[i] = static_cast<float>(std::sin(0.1 * static_cast<double>(i)));
  }
  const std::vector<float> before = widened(x);
  table.of<S>().rotary(kRows, kHeads, head_dim, cosines.data(), sines.data(), back, x.data(), ldx);
  EXPECT_TRUE(x.intact());
  const std::vector<float> after = widened(x);
  for (std::int64_t i = 0; i < kRows; ++i)
    for (std::int64_t c = 0; c < ldx; ++c) {
      const std::int64_t within = c % head_dim, half = head_dim / 2, partner = within < half ? c + half : c - half;
      const auto at = static_cast<std::size_t>(i * ldx + c);
      float expected = before[at];
      if (c < kHeads * head_dim) {
        const float other = before[static_cast<std::size_t>(i * ldx + partner)];
        const float cosine = cosines[i * half + within % half];
        const float sine = (within < half) != back ? -sines[i * half + within % half] : sines[i * half + within % half];
        const float kept = before[at] * cosine, crossed = other * sine;
        expected = stored<S>(kept + crossed);
      }
      if (!same(after[at], expected)) ADD_FAILURE() << i << ' ' << c << ": " << after[at] << ", not " << expected;
    }
  return after;
}

constexpr std::int64_t kHeadDims[] = {2, 4, 14, 32, 34, 64, 128};

TEST(RowRotary, RotatesPairsOfEveryHead) {
  each_storage([](auto type) {
    using S = decltype(type);
    for (const std::int64_t head_dim : kHeadDims)
      for (const bool hostile : {false, true})
        for (const bool back : {false, true})
          expect_same_in_all_sets([&](const RowKernels& table) { return turned<S>(table, head_dim, hostile, back); });
  });
}

// The formula of train.h for one number.
struct Adam {
  float p, m, v;
};
Adam plain_adamw(const AdamWFactors& f, Adam x, float gradient) {
  const float g = gradient * f.gradient_scale;
  const float old_m = f.beta1 * x.m, new_m = f.one_minus_beta1 * g;
  const float squared = g * g, old_v = f.beta2 * x.v, new_v = f.one_minus_beta2 * squared;
  x.m = old_m + new_m;
  x.v = old_v + new_v;
  const float root = std::sqrt(x.v) * f.inverse_root_bias2;
  const float change = f.step_size * (x.m / (root + f.eps)), kept = f.keep * x.p;
  x.p = kept - change;
  return x;
}

TEST(RowAdamW, MatchesTheFormula) {
  const AdamWFactors factors = {0.7f, 0.9f, 0.1f, 0.99f, 0.01f, 0.9998f, 0.003f, 1.7f, 1e-8f};
  for (const RowKernels* table : available_row_tables())
    for (const bool hostile : {false, true})
      for (const std::int64_t size : kRowSizes) {
        SCOPED_TRACE(std::string(table->name) + ", size " + std::to_string(size));
        Numbers numbers(static_cast<std::uint64_t>(size));
        Guarded<float> p(size, 1), m(size, 2), v(size, 3), g(size, 5);
        for (Guarded<float>* one : {&p, &m, &v, &g}) fill_stored(numbers, *one, hostile);
        for (std::int64_t i = 0; i < size; ++i) v[i] = std::abs(v[i]);
        std::vector<Adam> expected;
        for (std::int64_t i = 0; i < size; ++i)
          expected.push_back(plain_adamw(factors, plain_adamw(factors, {p[i], m[i], v[i]}, g[i]), g[i]));
        for (int step = 0; step < 2; ++step) table->adamw_update(size, factors, p.data(), m.data(), v.data(), g.data());
        for (std::int64_t i = 0; i < size; ++i) {
          const Adam& e = expected[static_cast<std::size_t>(i)];
          ASSERT_TRUE(same(p[i], e.p) && same(m[i], e.m) && same(v[i], e.v)) << i;
        }
        EXPECT_TRUE(p.intact() && m.intact() && v.intact());
      }
}

TEST(RowSquares, AreSummedInTheirDocumentedOrder) {
  for (const std::int64_t size : kRowSizes)
    for (const RowKernels* table : available_row_tables()) {
      Numbers numbers(static_cast<std::uint64_t>(size));
      Guarded<float> x(size, 1);
      fill_stored(numbers, x, false, 1e20f);  // squares exceed f32's range
      double lanes[16] = {}, sum = 0;
      const std::int64_t whole = size / 16 * 16;
      for (std::int64_t i = 0; i < whole; ++i) lanes[i % 16] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      for (const double lane : lanes) sum += lane;
      for (std::int64_t i = whole; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      EXPECT_EQ(table->sum_of_squares(size, x.data()), sum);
      x[size - 1] = kNaN;
      EXPECT_TRUE(std::isnan(table->sum_of_squares(size, x.data())));
    }
}

}  // namespace
}  // namespace qkv::test
