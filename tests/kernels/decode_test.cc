// SPDX-License-Identifier: Apache-2.0
// Decode kernels: every set of this processor gives the same bits for blocks, and sums in the documented order.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/block_types.h"
#include "core/random.h"
#include "kernels/decode_kernels.h"
#include "kernels/kernels.h"
#include "qkv/tensor.h"

namespace qkv {
namespace {

// The available sets, by the name of the best one in use.
std::vector<const DecodeKernels*> sets_here() {
  std::vector<const DecodeKernels*> sets{&kPortableDecodeKernels};
#if defined(__x86_64__)
  for (const DecodeKernels* set : {&kAvx2DecodeKernels, &kAvx512DecodeKernels, &kAvx512Bf16DecodeKernels}) {
    if (decode_kernels().name == "portable") break;
    sets.push_back(set);
    if (set->name == decode_kernels().name) break;
  }
#endif
  return sets;
}

std::vector<float> drawn(std::int64_t size, std::uint64_t seed) {
  const Random random(seed, 3);
  std::vector<float> x(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i));
  return x;
}

TEST(RoundRow, KeepsNumbersToTwoToTheMinus16OfTheLargest) {
  for (const DecodeKernels* set : sets_here()) {
    const std::vector<float> x = drawn(96, 1);
    std::vector<RowBlock> blocks(3);
    set->round_row(96, x.data(), blocks.data());
    for (std::size_t b = 0; b < 3; ++b) {
      float most = 0;
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < 32; ++i) most = std::max(most, std::abs(x[32 * b + i]));
      for (std::size_t i = 0; i < 32; ++i) {
        const int whole = blocks[b].high[i] * 256 + blocks[b].low[i];
        sum += whole;
        EXPECT_NEAR(blocks[b].scale * static_cast<float>(whole), x[32 * b + i], most * 0x1p-16f);
      }
      EXPECT_EQ(blocks[b].sum, sum);
    }
  }
}

TEST(RoundRow, ZerosTinyAndNonFiniteNumbers) {
  for (const DecodeKernels* set : sets_here()) {
    std::vector<float> x(64, 0.0f);
    std::vector<RowBlock> blocks(2);
    set->round_row(64, x.data(), blocks.data());
    EXPECT_EQ(blocks[0].scale, 0);
    EXPECT_EQ(blocks[0].sum, 0);
    x[3] = 1e-40f;
    for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      x[40] = bad;
      set->round_row(64, x.data(), blocks.data());
      EXPECT_EQ(blocks[0].scale, 0);
      EXPECT_TRUE(std::isnan(blocks[1].scale));
      EXPECT_EQ(blocks[1].sum, 0);
    }
    x = std::vector<float>(64, -3.0f);
    x[0] = 3.0f;  // the limits of the range
    set->round_row(64, x.data(), blocks.data());
    EXPECT_EQ(blocks[0].high[0], 127);
    EXPECT_EQ(blocks[0].low[0], 0);
    EXPECT_EQ(blocks[0].high[1], -127);
    EXPECT_EQ(blocks[0].sum, -30 * 32512);
  }
}

// A panel of random bytes with scales near 1, laid out as in decode_kernels.h.
std::vector<std::byte> random_panel(DType type, std::int64_t blocks, std::uint64_t seed) {
  const Random random(seed, 4);
  std::vector<std::byte> panel(static_cast<std::size_t>(blocks * panel_block_bytes(type)));
  for (std::size_t i = 0; i < panel.size(); ++i) panel[i] = static_cast<std::byte>(random.below(i, 256));
  const std::size_t halves = type == DType::q4_1 ? 32 : 16;
  for (std::int64_t b = 0; b < blocks; ++b)
    for (std::size_t h = 0; h < halves; ++h) {
      const f16 scale = to_f16(static_cast<float>(random.below(1000 + h, 2001)) * 1e-3f - 1.0f);
      std::memcpy(panel.data() + static_cast<std::size_t>(b * panel_block_bytes(type)) + 2 * h, &scale, 2);
    }
  return panel;
}

// The dequantised values of the panel, in double.
double exact(DType type, std::int64_t blocks, const std::vector<std::byte>& panel, const RowBlock* x, int column) {
  double sum = 0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::byte* at = panel.data() + b * panel_block_bytes(type);
    f16 half;
    std::memcpy(&half, at + 2 * column, 2);
    const double d = to_f32(half);
    double m = 0;
    if (type == DType::q4_1) {
      std::memcpy(&half, at + 32 + 2 * column, 2);
      m = to_f32(half);
    }
    const std::byte* quants = at + (type == DType::q4_1 ? 64 : 32);
    for (int i = 0; i < 32; ++i) {
      const int whole = x[b].high[i] * 256 + x[b].low[i];
      double w = 0;
      if (type == DType::q8_0) {
        w = d * (std::to_integer<int>(quants[i / 4 * 64 + column * 4 + i % 4]) - 128);
      } else {
        const int byte = std::to_integer<int>(quants[i % 16 / 4 * 64 + column * 4 + i % 4]);
        const int q = i < 16 ? byte & 15 : byte >> 4;
        w = type == DType::q4_0 ? d * (q - 8) : d * q + m;
      }
      sum += w * static_cast<double>(x[b].scale) * whole;
    }
  }
  return sum;
}

TEST(BlockPanel, EverySetGivesTheSameBitsAndTheRightSums) {
  for (const DType type : {DType::q8_0, DType::q4_0, DType::q4_1})
    for (const std::int64_t blocks : {1, 2, 18})
      for (const std::int64_t rows : {1, 2, 3, 5, 6, 13}) {
        const std::vector<std::byte> panel = random_panel(type, blocks, 7);
        const std::vector<float> x = drawn(rows * blocks * 32, 8);
        std::vector<RowBlock> whole(static_cast<std::size_t>(rows * blocks)), others = whole;
        kPortableDecodeKernels.round_row(rows * blocks * 32, x.data(), whole.data());
        std::vector<float> expected(static_cast<std::size_t>(rows * 20), 5.0f);
        kPortableDecodeKernels.block_panel(type, rows, blocks, panel.data(), whole.data(), expected.data(), 20);
        for (std::int64_t r = 0; r < rows; ++r)
          for (int c = 0; c < 16; ++c) {
            const float found = expected[static_cast<std::size_t>(r * 20 + c)];
            EXPECT_NEAR(found, exact(type, blocks, panel, whole.data() + r * blocks, c), 2e-3);
          }
        for (const DecodeKernels* set : sets_here()) {
          SCOPED_TRACE(set->name);
          set->round_row(rows * blocks * 32, x.data(), others.data());
          EXPECT_EQ(std::memcmp(others.data(), whole.data(), whole.size() * sizeof(RowBlock)), 0);
          std::vector<float> found(expected.size(), 5.0f);
          set->block_panel(type, rows, blocks, panel.data(), whole.data(), found.data(), 20);
          EXPECT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)), 0);
        }
      }
}

TEST(F32Panel, SumsChunksOfFusedChainsInOrder) {
  for (const DecodeKernels* set : sets_here()) {
    if (!set->f32_panel) continue;
    const std::int64_t k = 37, rows = 7, chunk = 16;
    for (const int vectors : {1, 2, 3, 4}) {
      const std::int64_t columns = 16 * vectors;
      const std::vector<float> w = drawn(k * columns, 1), x = drawn(rows * k, 2);
      std::vector<float> y(static_cast<std::size_t>(rows * 64));
      set->f32_panel(vectors, rows, k, chunk, w.data(), x.data(), k, y.data(), 64);
      for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
          float total = 0;
          for (std::int64_t begin = 0; begin < k; begin += chunk) {
            float sum = 0;
            for (std::int64_t p = begin; p < std::min(k, begin + chunk); ++p)
              sum = std::fma(x[static_cast<std::size_t>(r * k + p)], w[static_cast<std::size_t>(p * columns + c)], sum);
            total = begin == 0 ? sum : total + sum;
          }
          EXPECT_EQ(y[static_cast<std::size_t>(r * 64 + c)], total);
        }
    }
  }
}

}  // namespace
}  // namespace qkv
