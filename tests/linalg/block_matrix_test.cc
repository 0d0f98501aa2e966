// SPDX-License-Identifier: Apache-2.0
// Matrices in the blocks of a file: products correct up to the rounding of x, with the same bits for any number of rows
// and threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/block_types.h"
#include "core/random.h"
#include "linalg/block_matrix.h"
#include "linalg/weights.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

std::vector<float> drawn(std::int64_t size, std::uint64_t seed) {
  const Random random(seed, 3);
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

// Columns of blocks as stored in a file, [columns, row_bytes].
struct Part {
  DType type;
  std::int64_t in, columns;
  std::vector<std::byte> rows;
  std::vector<float> numbers;  // [columns, in], the dequantised values

  Part(DType t, std::int64_t k, std::int64_t n, std::uint64_t seed) : type(t), in(k), columns(n) {
    const std::vector<float> values = drawn(k * n, seed);
    rows.resize(static_cast<std::size_t>(row_bytes(type, k * n)));
    numbers.resize(values.size());
    quantise_row(type, values.data(), k * n, rows.data());
    dequantise_row(type, rows.data(), k * n, numbers.data());
  }
  BlockColumns source() const {
    return {type, columns, [this](std::int64_t first, std::int64_t count, std::byte* to) {
              const auto bytes = static_cast<std::size_t>(row_bytes(type, in));
              std::memcpy(to, rows.data() + static_cast<std::size_t>(first) * bytes,
                          static_cast<std::size_t>(count) * bytes);
            }};
  }
};

void expect_products(const std::vector<Part>& parts, std::int64_t in, std::int64_t padding, bool with_bias) {
  std::int64_t columns = 0;
  std::vector<BlockColumns> sources;
  for (const Part& part : parts) {
    columns += part.columns;
    sources.push_back(part.source());
  }
  const std::int64_t out = columns + padding, rows = 19;
  Weights w(DType::f32, in, out);
  w.prepare_blocks(sources);
  EXPECT_TRUE(w.has_blocks());
  const std::vector<float> x = drawn(rows * in, 5), bias = drawn(out, 6);
  std::vector<float> y(static_cast<std::size_t>(rows * out), 7.0f), column(static_cast<std::size_t>(in));
  const float* b = with_bias ? bias.data() : nullptr;
  w.forward(rows, x.data(), b, y.data());
  std::int64_t first = 0;
  for (const Part& part : parts) {
    for (std::int64_t j = 0; j < part.columns; ++j) {
      const float* numbers = part.numbers.data() + j * in;  // [in]
      w.column(first + j, column.data());
      EXPECT_EQ(std::memcmp(column.data(), numbers, column.size() * sizeof(float)), 0);
      for (std::int64_t r = 0; r < rows; ++r) {
        double sum = with_bias ? bias[static_cast<std::size_t>(first + j)] : 0, size = 0;
        for (std::int64_t p = 0; p < in; ++p) {
          const double term = double{x[static_cast<std::size_t>(r * in + p)]} * double{numbers[p]};
          sum += term;
          size += std::abs(term);
        }
        EXPECT_NEAR(y[static_cast<std::size_t>(r * out + first + j)], sum, 1e-4 * size + 1e-5);
      }
    }
    first += part.columns;
  }
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t j = columns; j < out; ++j) EXPECT_EQ(y[static_cast<std::size_t>(r * out + j)], 0);
  for (const int threads : {1, 2, 5})  // each row by itself, and with other rows around it
    for (const std::int64_t count : {1, 3}) {
      set_num_threads(threads);
      std::vector<float> again(static_cast<std::size_t>(count * out));
      for (std::int64_t r = 0; r + count <= rows; r += count) {
        w.forward(count, x.data() + r * in, b, again.data());
        EXPECT_EQ(std::memcmp(again.data(), y.data() + r * out, again.size() * sizeof(float)), 0);
      }
    }
  set_num_threads(0);
}

TEST(BlockMatrix, MatchesTheDequantisedProduct) {
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1})
    for (const std::int64_t n : {1, 15, 16, 33}) {
      SCOPED_TRACE(std::string(dtype_name(type)) + " " + std::to_string(n));
      expect_products({Part(type, 64, n, 1)}, 64, 0, false);
    }
}

TEST(BlockMatrix, AdjacentPartsOfSeveralTypesWithBiasAndPadding) {
  expect_products({Part(DType::q4_1, 96, 48, 1), Part(DType::q8_0, 96, 20, 2), Part(DType::q4_0, 96, 7, 3)}, 96, 5,
                  true);
  expect_products({Part(DType::q8_0, 32, 100, 4)}, 32, 28, false);
}

TEST(BlockMatrix, RefusesOtherTypesAndLengths) {
  EXPECT_THROW(BlockMatrix(DType::q6_k, 256, 4), std::invalid_argument);
  EXPECT_THROW(BlockMatrix(DType::q8_0, 48, 4), std::invalid_argument);
  Weights rounded(DType::bf16, 32, 4);
  const Part part(DType::q8_0, 32, 5, 1);
  const BlockColumns source = part.source();
  EXPECT_THROW(rounded.prepare_blocks({&source, 1}), std::invalid_argument);
  Weights narrow(DType::f32, 32, 4);
  EXPECT_THROW(narrow.prepare_blocks({&source, 1}), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
