// SPDX-License-Identifier: Apache-2.0
// Small-batch products on our own kernels have the same bits as the library's products of many rows.
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "core/random.h"
#include "kernels/decode_kernels.h"
#include "linalg/packed_product.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

Tensor drawn(const Dims& shape, DType dtype, std::uint64_t seed) {
  const Random random(seed, 1);
  Tensor x(shape, dtype);
  for (std::int64_t i = 0; i < x.size(); ++i) {
    const auto value = static_cast<float>(random.below(static_cast<std::uint64_t>(i), 20001)) * 1e-4f - 1;
    if (dtype == DType::bf16)
      x.data<bf16>()[i] = to_bf16(value);
    else
      x.data<float>()[i] = value;
  }
  return x;
}

// Both algorithms for several numbers of rows and threads; returns whether our own was available.
bool expect_equal_bits(DType operand, std::int64_t k, std::int64_t n) {
  const Tensor w = drawn({k, n}, DType::f32, 1), bias = drawn({n}, DType::f32, 2);
  const Tensor x = drawn({20, k}, operand, 3);
  PackedMatrix matrix;
  matrix.pack(operand, k, n, w.data(), false);
  if (!matrix.has_small_batch()) return false;
  for (const DType y_dtype : {DType::f32, operand}) {
    Tensor expected({20, n}, y_dtype), found({20, n}, y_dtype);
    matrix.product(PackedMatrix::Algorithm::library, 20, x.raw(), bias.data(), y_dtype, expected.raw());
    for (const std::int64_t rows : {1, 2, 3, 4, 7, 20}) {
      std::memset(found.raw(), 0, found.bytes());
      set_num_threads(1 + static_cast<int>(rows % 3));
      matrix.product(PackedMatrix::Algorithm::small_batch, rows, x.raw(), bias.data(), y_dtype, found.raw());
      const std::size_t bytes = static_cast<std::size_t>(rows * n) * dtype_size(y_dtype);
      EXPECT_EQ(std::memcmp(found.raw(), expected.raw(), bytes), 0) << rows << " rows";
    }
  }
  set_num_threads(0);
  return true;
}

TEST(SmallBatch, MatchesManyRowsBitForBit) {
  for (const DType operand : {DType::f32, DType::bf16}) {
    if (!packed_products(operand)) continue;
    int there = 0, shapes = 0;
    for (const std::int64_t k : {2, 34, 100, 576, 768, 1000, 1536, 2050, 3072})
      for (const std::int64_t n : {1, 40, 64, 100, 192}) {
        SCOPED_TRACE(std::string(dtype_name(operand)) + " " + std::to_string(k) + " x " + std::to_string(n));
        ++shapes;
        there += expect_equal_bits(operand, k, n);
      }
    const bool able =
        operand == DType::bf16 ? decode_kernels().bf16_panel != nullptr : decode_kernels().f32_panel != nullptr;
    EXPECT_GT(there, able ? shapes * 3 / 4 : -1);  // otherwise decode would be slow without anyone noticing
    RecordProperty(std::string(dtype_name(operand)), there);
  }
}

TEST(SmallBatch, AMatrixThatDoesNotRevealTheOrderIsLeftToTheLibrary) {
  if (!packed_products(DType::f32)) GTEST_SKIP() << "no packed products here";
  const std::int64_t k = 1300, n = 70;
  const Tensor zeros({k, n}), x = drawn({1, k}, DType::f32, 3);
  PackedMatrix matrix;
  matrix.pack(DType::f32, k, n, zeros.data(), false);
  EXPECT_FALSE(matrix.has_small_batch());
  Tensor y = drawn({1, n}, DType::f32, 4);
  matrix.product(1, x.raw(), nullptr, DType::f32, y.raw());
  for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(y.data()[i], 0);
  const Tensor w = drawn({k, n}, DType::f32, 1);  // the same shape is detected later
  matrix.pack(DType::f32, k, n, w.data(), false);
  EXPECT_EQ(matrix.has_small_batch(), decode_kernels().f32_panel != nullptr);
}

}  // namespace
}  // namespace qkv
