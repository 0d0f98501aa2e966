// SPDX-License-Identifier: Apache-2.0
// Compares the CPU's results with those of the reference device.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/operations.h"

namespace qkv::test {

inline void append(Results& all, Results more) {
  for (Result& one : more) all.push_back(std::move(one));
}

// The difference is at most `bound` times the largest expected number (or 1); infinities and NaN must match.
inline void expect_near(const Numbers& expected, const Numbers& found, double bound, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  double size = 1;
  for (const double x : expected)
    if (std::isfinite(x)) size = std::max(size, std::abs(x));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(expected[i])) {
      ASSERT_TRUE(expected[i] == found[i] || (std::isnan(expected[i]) && std::isnan(found[i]))) << what << " " << i;
      continue;
    }
    ASSERT_NEAR(found[i], expected[i], bound * size) << what << " " << i;
  }
}

// Runs with compute dtype f32, then bf16; results that depend on bf16 values may differ by `rounding`, others by 1e-5.
// Elements that are not written stay NaN on both devices.
template <class Run>
void expect_agreement(const Run& run, const testing::Message& what = testing::Message(), double rounding = 0x1p-8,
                      bool all_rounded = false) {
  const auto reference = find_device("reference"), cpu = find_device("cpu");
  for (const DType operand : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(testing::Message() << what << ", operands " << dtype_name(operand));
    const Results expected = run(Machine{*reference, DType::f64, operand});
    const Results found = run(Machine{*cpu, operand, operand});
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      const bool rounded = operand == DType::bf16 && (expected[i].is_operand || all_rounded);
      expect_near(expected[i].values, found[i].values, rounded ? rounding : 1e-5,
                  ("result " + std::to_string(i)).c_str());
      if (testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace qkv::test
