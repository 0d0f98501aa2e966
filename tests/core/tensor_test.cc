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

TEST(Tensor, EmptyTensorsStillHaveAnAddress) {
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

TEST(Tensor, BlockTensorsHaveWholeBlocks) {
  const Tensor t({2, 3, 64}, DType::q8_0);
  EXPECT_EQ(t.size(), 384);
  EXPECT_EQ(t.bytes(), 2u * 3 * 2 * 34);
  EXPECT_THROW(t.data(), std::invalid_argument);
  EXPECT_THROW(Tensor({2, 33}, DType::q8_0), std::invalid_argument);
  EXPECT_THROW(Tensor({64, 32}, DType::q4_k), std::invalid_argument);
  EXPECT_THROW(Tensor(Dims{}, DType::q8_0), std::invalid_argument);
  EXPECT_THROW(Tensor({std::int64_t{1} << 62}, DType::f32), std::bad_alloc);
}

// Types that are not element types, and views and data of them, do not compile.
template <class T>
concept HasDType = requires {
  dtype_of<T>;
};
template <class T>
concept CanBeViewed = requires(T* data, const Dims& shape) {
  view(data, shape);
};
template <class T>
concept IsDataOfTensor = requires(Tensor& tensor) {
  tensor.data<T>();
};
template <class T>
constexpr bool kIsElement = HasDType<T>&& CanBeViewed<T>&& CanBeViewed<const T>&& IsDataOfTensor<T>;
template <class T>
constexpr bool kIsRefused = !HasDType<T> && !CanBeViewed<T> && !CanBeViewed<const T> && !IsDataOfTensor<T>;

static_assert(kIsElement<float> && kIsElement<double> && kIsElement<bf16> && kIsElement<f16>);
static_assert(kIsElement<std::int64_t> && kIsElement<std::int32_t> && kIsElement<bool>);
static_assert(kIsRefused<std::uint8_t> && kIsRefused<std::int8_t> && kIsRefused<char> && kIsRefused<std::byte>);
static_assert(kIsRefused<std::uint16_t> && kIsRefused<std::uint32_t> && kIsRefused<std::uint64_t>);
static_assert(kIsRefused<long double> && kIsRefused<long long> && kIsRefused<DType>);

TEST(DTypeNames, RoundTrip) {
  for (DType d : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i64, DType::i32, DType::boolean, DType::q8_0,
                  DType::q4_0, DType::q4_1, DType::q5_0, DType::q5_1, DType::q4_k, DType::q5_k, DType::q6_k})
    EXPECT_EQ(dtype_from_name(dtype_name(d)), d);
  EXPECT_THROW(dtype_from_name("float"), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
