// SPDX-License-Identifier: Apache-2.0
#include "page/inspect_codes.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/random.h"
#include "page/packed.h"

namespace qkv {
namespace {

using Bytes = std::vector<std::uint8_t>;

TEST(Packed, base85_by_hand) {
  EXPECT_EQ(base85({}), "");
  EXPECT_EQ(base85(Bytes{0, 0, 0, 0}), "(((((");
  EXPECT_EQ(base85(Bytes{255}), "+(");                    // 255 = 3 * 85 + 0
  EXPECT_EQ(base85(Bytes{20}), "(}");                     // digit 20 would be '<'
  EXPECT_EQ(base85(Bytes{255, 255, 255, 255}), "z?^4(");  // 82 23 54 12 0
  EXPECT_EQ(base85(Bytes{1, 0, 0, 0, 2, 1}), "(((()(++");
}

TEST(Packed, round_trips_and_never_opens_a_tag) {
  const Random random(3);
  for (const std::size_t size : {0, 1, 2, 3, 4, 5, 1000, 300001}) {
    for (const Deflate how : {Deflate::repeats, Deflate::values}) {
      Bytes bytes(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(random.bits(i) >> (i % 9 + 50));
      const Bytes small = deflated(bytes, how);
      EXPECT_EQ(base85(small).find('<'), std::string::npos);
      Bytes back(size + 1);
      uLongf length = static_cast<uLongf>(back.size());
      ASSERT_EQ(uncompress(back.data(), &length, small.data(), static_cast<uLong>(small.size())), Z_OK);
      back.resize(length);
      EXPECT_EQ(back, bytes);
    }
  }
}

std::int64_t code_at(const Bytes& bytes, std::size_t from, std::size_t count, std::size_t at, bool wide) {
  return bytes[from + at] | (wide ? bytes[from + count + at] << 8 : 0);
}

float f32_at(const Bytes& bytes, std::size_t at) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4; ++i) bits |= static_cast<std::uint32_t>(bytes[at + i]) << (8 * i);
  return std::bit_cast<float>(bits);
}

TEST(InspectCodes, weights_are_within_half_a_step) {
  const std::size_t ctx = 33, size = ctx * (ctx + 1) / 2;
  const Random random(5);
  std::vector<float> pattern(ctx * ctx);  // [33, 33]
  for (std::size_t i = 0; i < pattern.size(); ++i) pattern[i] = static_cast<float>(std::pow(random.uniform(i), 9.0));
  pattern[0] = 1;
  pattern[33] = 0;
  for (const InspectPrecision& precision : inspect_ladder()) {
    Bytes bytes;
    append_weights(bytes, pattern.data(), ctx, precision);
    const bool wide = precision.weight_peak > 255;
    ASSERT_EQ(bytes.size(), size * (wide ? 2 : 1));
    std::size_t at = 0;
    for (std::size_t i = 0; i < ctx; ++i) {
      for (std::size_t j = 0; j <= i; ++j, ++at) {
        const double code = static_cast<double>(code_at(bytes, 0, size, at, wide));
        const double low = std::pow(std::max(0.0, code - 0.5001) / precision.weight_peak, precision.weight_power);
        const double high = std::pow((code + 0.5001) / precision.weight_peak, precision.weight_power);
        EXPECT_GE(pattern[i * ctx + j], low);
        EXPECT_LE(pattern[i * ctx + j], high);
      }
    }
  }
  pattern[34] = std::numeric_limits<float>::quiet_NaN();
  Bytes bytes;
  EXPECT_THROW(append_weights(bytes, pattern.data(), ctx, inspect_ladder()[0]), std::invalid_argument);
  pattern[34] = -0.1f;
  EXPECT_THROW(append_weights(bytes, pattern.data(), ctx, inspect_ladder()[0]), std::invalid_argument);
}

TEST(InspectCodes, scores_are_within_half_a_step) {
  const std::size_t ctx = 7;
  const Random random(6);
  std::vector<float> scores(ctx * ctx);  // [7, 7]
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(30 * random.normal(i));
  for (std::size_t j = 0; j < ctx; ++j) scores[ctx + j] = -2.5f;  // a constant row: the step is 0
  for (const int bits : {8, 16}) {
    Bytes bytes;
    append_scores(bytes, scores.data(), ctx, bits);
    ASSERT_EQ(bytes.size(), 8 * ctx + ctx * ctx * static_cast<std::size_t>(bits) / 8);
    for (std::size_t i = 0; i < ctx; ++i) {
      const double least = f32_at(bytes, 8 * i), step = f32_at(bytes, 8 * i + 4);
      for (std::size_t j = 0; j < ctx; ++j) {
        const auto code = static_cast<double>(code_at(bytes, 8 * ctx, ctx * ctx, i * ctx + j, bits > 8));
        EXPECT_NEAR(least + step * code, scores[i * ctx + j], step * 0.5001 + 1e-5);
      }
    }
  }
  scores[5] = std::numeric_limits<float>::infinity();
  Bytes bytes;
  EXPECT_THROW(append_scores(bytes, scores.data(), ctx, 8), std::invalid_argument);
}

TEST(InspectCodes, vectors_are_within_half_a_step) {
  const std::size_t ctx = 5, width = 9, stride = 11;
  const Random random(7);
  std::vector<float> rows(ctx * stride);  // [5, 11]: only 9 of each row are used
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(random.normal(i));
  for (std::size_t c = 0; c < width; ++c) rows[2 * stride + c] = 0;
  for (std::size_t c = 0; c < width; ++c) rows[3 * stride + c] *= 1e30f;
  for (const int bits : {3, 5, 6, 8, 16}) {
    Bytes bytes;
    append_vectors(bytes, rows.data(), ctx, width, stride, bits);
    const double peak = std::pow(2.0, bits - 1) - 1;
    for (std::size_t t = 0; t < ctx; ++t) {
      const auto scale_bits = static_cast<std::uint32_t>(bytes[2 * t] | bytes[2 * t + 1] << 8) << 16;
      const double scale = std::bit_cast<float>(scale_bits);
      for (std::size_t c = 0; c < width; ++c) {
        const auto code = static_cast<double>(code_at(bytes, 2 * ctx, ctx * width, t * width + c, bits > 8));
        EXPECT_NEAR(scale * (code - peak) / peak, rows[t * stride + c], scale / peak * 0.5001);
      }
    }
  }
  rows[4] = std::numeric_limits<float>::infinity();
  Bytes bytes;
  EXPECT_THROW(append_vectors(bytes, rows.data(), ctx, width, stride, 8), std::invalid_argument);
}

TEST(InspectCodes, log_sums_recover_scores) {
  // Row 1: scores 1 and 3, so the log-sum-exp is ln(e + e^3) = 3.126928.
  const float sum = 3.126928f;
  const std::vector<float> scaled = {0.5f, 9, 1, 3}, pattern = {1, 0, std::exp(1 - sum), std::exp(3 - sum)};  // [2, 2]
  Bytes bytes;
  append_log_sums(bytes, scaled.data(), pattern.data(), 2);
  EXPECT_NEAR(f32_at(bytes, 0), 0.5f, 1e-6);
  EXPECT_NEAR(f32_at(bytes, 4), sum, 1e-5);
}

}  // namespace
}  // namespace qkv
