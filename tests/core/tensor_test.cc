// SPDX-License-Identifier: Apache-2.0
#include "qkv/tensor.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace qkv {
namespace {

TEST(Tensor, IsZeroAlignedAndRowMajor) {
  Tensor t({2, 3, 5});
  EXPECT_EQ(t.size(), 30);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.raw()) % 64, 0u);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(t.data()[i], 0.0f);
  EXPECT_EQ(to_string(t.view().strides), "[15, 5, 1]");
}

TEST(Tensor, WithoutElementsStillHasAnAddress) {
  Tensor t({2, 0, 5});
  EXPECT_EQ(t.size(), 0);
  EXPECT_TRUE(t.view());
  EXPECT_FALSE(View{});
}

TEST(Tensor, CopyIsDeep) {
  Tensor a({3});
  a.data()[1] = 7;
  Tensor b = a;
  b.data()[1] = 8;
  EXPECT_EQ(a.data()[1], 7);
  EXPECT_THROW(a.data<double>(), std::invalid_argument);
}

TEST(Shape, RefusesNegativeAndWrappingSizes) {
  EXPECT_THROW(element_count({2, -1}), std::invalid_argument);
  EXPECT_THROW(element_count({1LL << 32, 1LL << 32}), std::invalid_argument);
  EXPECT_THROW(element_count({0, 1LL << 62, 4}), std::invalid_argument);
  EXPECT_EQ(element_count({42, 1024, 50304}), 2163474432);
  EXPECT_THROW(Dims({1, 1, 1, 1, 1, 1, 1, 1, 1}), std::invalid_argument);
}

TEST(Shape, SwapAxesKeepsTheElements) {
  std::vector<float> x(24);
  const View v = swap_axes(view(x.data(), {2, 3, 4}), 0, 1);
  EXPECT_EQ(v.shape, (Dims{3, 2, 4}));
  EXPECT_EQ(v.strides, (Dims{4, 12, 1}));
}

TEST(DTypeNames, GoBothWays) {
  for (DType d : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::boolean})
    EXPECT_EQ(dtype_from_name(dtype_name(d)), d);
  EXPECT_THROW(dtype_from_name("float"), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
