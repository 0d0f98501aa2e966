// SPDX-License-Identifier: Apache-2.0
#include "core/finite.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/float_types.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

template <class T>
void expect_found(std::int64_t count, std::int64_t at, float value) {
  Tensor values(Dims{count}, dtype_of<T>);
  for (std::int64_t i = 0; i < count; ++i) values.data<T>()[i] = narrow<T>(i % 7 == 0 ? -65000.0f : 1e-30f);
  EXPECT_EQ(first_non_finite(values.view()), -1);
  values.data<T>()[at] = narrow<T>(value);
  if (at + 1 < count) values.data<T>()[count - 1] = narrow<T>(value);  // the first one counts
  EXPECT_EQ(first_non_finite(values.view()), at);
}

TEST(Finite, FindsTheFirstNumberThatIsNot) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const int threads : {1, 3}) {
    set_num_threads(threads);
    for (const float value : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::int64_t at : {0, 1023, 1024, 270'000, 299'999}) {
        expect_found<float>(300'000, at, value);
        expect_found<bf16>(300'000, at, value);
        expect_found<f16>(300'000, at, value);
      }
      expect_found<float>(1, 0, value);
    }
  }
  set_num_threads(0);
  std::vector<double> wide{1e300, -1e300, 0};
  EXPECT_EQ(first_non_finite(ConstView{wide.data(), DType::f64, Dims{3}, Dims{1}}), -1);
  wide[2] = std::numeric_limits<double>::infinity();
  EXPECT_EQ(first_non_finite(ConstView{wide.data(), DType::f64, Dims{3}, Dims{1}}), 2);
  const std::vector<float> largest{std::numeric_limits<float>::max(), std::numeric_limits<float>::denorm_min()};
  EXPECT_EQ(first_non_finite(std::span(largest)), -1);
}

}  // namespace
}  // namespace qkv
