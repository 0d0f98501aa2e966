// SPDX-License-Identifier: Apache-2.0
#include "core/float_types.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace qkv {
namespace {

TEST(FloatTypes, EveryF16RoundTripsThroughF32) {
  for (std::uint32_t u = 0; u < 65536; ++u) {
    const f16 x{static_cast<std::uint16_t>(u)};
    const float wide = widen(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(widen(narrow<f16>(wide)))) << u;
    } else {
      ASSERT_EQ(narrow<f16>(wide).bits, x.bits) << u;
    }
  }
}

TEST(FloatTypes, EveryBf16RoundTripsThroughF32) {
  for (std::uint32_t u = 0; u < 65536; ++u) {
    const bf16 x{static_cast<std::uint16_t>(u)};
    const float wide = widen(x);
    if (std::isnan(wide)) {
      EXPECT_TRUE(std::isnan(widen(narrow<bf16>(wide)))) << u;
    } else {
      ASSERT_EQ(narrow<bf16>(wide).bits, x.bits) << u;
    }
  }
}

TEST(FloatTypes, RoundsToNearestEven) {
  EXPECT_EQ(narrow<bf16>(1.00390625f).bits, 0x3f80);  // a tie, to even
  EXPECT_EQ(narrow<bf16>(1.01171875f).bits, 0x3f82);  // a tie, to even
  EXPECT_EQ(narrow<f16>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(narrow<f16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(narrow<f16>(0x1p-25f).bits, 0x0000);  // a tie with the smallest subnormal, to even
  EXPECT_EQ(narrow<f16>(0x1.8p-25f).bits, 0x0001);
  EXPECT_EQ(narrow<f16>(-0.0f).bits, 0x8000);
}

// f16 compared with the compiler's conversion, over a walk through all f32 patterns.
TEST(FloatTypes, F16AgreesWithTheCompiler) {
#ifdef __FLT16_MAX__
  for (std::uint64_t u = 0; u < (1ull << 32); u += 9973) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    if (std::isnan(x)) continue;
    const _Float16 theirs = static_cast<_Float16>(x);
    std::uint16_t bits;
    std::memcpy(&bits, &theirs, 2);
    ASSERT_EQ(narrow<f16>(x).bits, bits) << x;
  }
#endif
}

}  // namespace
}  // namespace qkv
