// SPDX-License-Identifier: Apache-2.0
#include "qkv/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "measure/peak_loops.h"
#include "measure/read_loops.h"
#include "qkv/kernels.h"
#include "qkv/threads.h"

namespace {

qkv::ModelConfig andrea_120m() {
  qkv::ModelConfig c;
  c.n_layer = 12;
  c.n_head = c.n_kv_head = 12;
  c.head_dim = c.v_head_dim = 64;
  c.d_model = 768;
  c.d_ff = 3072;
  c.vocab_size = 8449;
  c.ctx_len = 1024;
  return c;
}

TEST(Counts, CausalPairsMatchCounting) {
  for (std::int64_t q_len = 0; q_len < 7; ++q_len) {
    for (std::int64_t kv_len = 0; kv_len < 7; ++kv_len) {
      for (std::int64_t start = -9; start < 10; ++start) {
        std::int64_t pairs = 0;
        for (std::int64_t i = 0; i < q_len; ++i) {
          for (std::int64_t j = 0; j < kv_len; ++j) pairs += j <= start + i;
        }
        EXPECT_EQ(qkv::causal_pairs(q_len, kv_len, start), pairs) << q_len << ' ' << kv_len << ' ' << start;
      }
    }
  }
}

TEST(Counts, AttentionIsFourOperationsPerPairAndDimensionAndTwoAndAHalfTimesThatBackward) {
  EXPECT_EQ(qkv::attention_forward_flops(10, 64, 64), 10 * 4 * 64);
  EXPECT_EQ(qkv::attention_backward_flops(10, 64, 64), 10 * 10 * 64);
  EXPECT_EQ(qkv::attention_forward_flops(1, 3, 5), 2 * 3 + 2 * 5);
  EXPECT_EQ(qkv::attention_backward_flops(1, 3, 5), 6 * 3 + 4 * 5);
}

TEST(Counts, MatrixParametersByHand) {
  qkv::ModelConfig c;
  c.n_layer = 2;
  c.n_head = 4;
  c.n_kv_head = 2;
  c.head_dim = 3;
  c.v_head_dim = 5;
  c.d_model = 7;
  c.d_ff = 11;
  c.vocab_size = 13;
  // Q 7x12, K 7x6, V 7x10, O 20x7, MLP 7x11 and 11x7, head 7x13.
  EXPECT_EQ(qkv::matrix_parameters(c), 2 * (84 + 42 + 70 + 140 + 154) + 91);
  c.activation = qkv::Activation::silu;
  c.gated = true;
  EXPECT_EQ(qkv::matrix_parameters(c), 2 * (84 + 42 + 70 + 140 + 231) + 91);
  EXPECT_EQ(qkv::kv_cache_bytes(c, 10), 2 * 2 * 8 * 10 * 4);
  EXPECT_EQ(qkv::kv_cache_bytes(c, 10, qkv::DType::bf16), 2 * 2 * 8 * 10 * 2);
}

TEST(Counts, TrainingAndrea120mTakes605MegaflopsPerToken) {
  const qkv::ModelConfig c = andrea_120m();
  EXPECT_EQ(qkv::matrix_parameters(c), 12 * 12 * 768 * 768 + 768 * 8449);
  EXPECT_NEAR(qkv::training_flops_per_token(c, 1024) * 1e-6, 605, 0.5);
  EXPECT_EQ(qkv::training_flops_per_token(c, 1024), 3 * qkv::forward_flops_per_token(c, 1024));
  EXPECT_EQ(qkv::forward_flops_per_token(c, 0), 2.0 * static_cast<double>(qkv::matrix_parameters(c)));
}

TEST(Counts, VisiblePairsMatchCounting) {
  constexpr std::int64_t kFar = std::int64_t{1} << 62;
  for (const std::int64_t q_len : {0, 1, 3, 5})
    for (const std::int64_t kv_len : {0, 1, 4, 6})
      for (std::int64_t start = -7; start < 8; ++start)
        for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{2}, kFar})
          for (const std::int64_t right : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, kFar})
            for (const bool causal : {false, true}) {
              std::int64_t pairs = 0;
              for (std::int64_t i = 0; i < q_len; ++i)
                for (std::int64_t j = 0; j < kv_len; ++j) {
                  const std::int64_t position = start + i;
                  pairs += (!causal || j <= position) && (left < 0 || j >= position - left) &&
                           (right < 0 || j <= position + right);
                }
              ASSERT_EQ(qkv::visible_pairs(q_len, kv_len, start, causal, left, right), pairs)
                  << q_len << ' ' << kv_len << ' ' << start << ' ' << left << ' ' << right << ' ' << causal;
            }
}

TEST(Counts, PairsOfTheShapesThatTheBenchMeasures) {
  EXPECT_EQ(qkv::visible_pairs(4096, 4096, 0, true), 4096LL * 4097 / 2);
  EXPECT_EQ(qkv::visible_pairs(1, 16384, 16383, true), 16384);
  EXPECT_EQ(qkv::visible_pairs(8192, 8192, 0, true, 255), 255LL * 256 / 2 + (8192 - 255) * 256LL);
}

TEST(Peak, IsAPositiveFigureOfAKnownInstructionSet) {
  for (const qkv::DType dtype : {qkv::DType::f32, qkv::DType::bf16}) {
    const qkv::Peak peak = qkv::measure_peak(dtype);
    EXPECT_TRUE(std::isfinite(peak.gflops));
    EXPECT_GT(peak.gflops, 0);
    EXPECT_EQ(peak.instructions, qkv::measure::peak_loop(dtype, "").kernels);
  }
}

TEST(Peak, EveryLoopThatThisProcessorHasRuns) {
  const auto loops = qkv::measure::peak_loops();
  EXPECT_STREQ(loops.back().kernels, "portable");
  for (const auto& loop : loops) {
    SCOPED_TRACE(loop.kernels);
    EXPECT_GT(loop.flops_per_round, 0);
    EXPECT_EQ(loop.flops_per_round % (2 * loop.multiply_adds_per_round), 0);
    loop.run(1);
    loop.run(1000);
  }
}

TEST(Peak, TheLoopMatchesTheKernels) {
  const std::string chosen(qkv::kernel_set());
  EXPECT_EQ(qkv::measure::peak_loop(qkv::DType::f32, chosen).kernels, chosen);
  EXPECT_EQ(qkv::measure::peak_loop(qkv::DType::bf16, chosen).kernels, chosen);
  // Without bf16 products, bf16 is multiplied in f32.
  const auto portable = qkv::measure::peak_loop(qkv::DType::bf16, "portable");
  EXPECT_STREQ(portable.kernels, "portable");
  EXPECT_EQ(portable.dtype, qkv::DType::f32);
  EXPECT_EQ(qkv::PeakMeter(qkv::DType::f32, "portable").instructions(), "portable");
  EXPECT_THROW(qkv::measure_peak(qkv::DType::f64), std::invalid_argument);
  EXPECT_THROW(qkv::PeakMeter(qkv::DType::f32, "abacus"), std::invalid_argument);
}

TEST(Peak, TheoreticalIsFrequencyTimesOperationsTimesThreads) {
  const auto peak = qkv::theoretical_peak(qkv::DType::f32, "portable");
  EXPECT_GT(peak.ghz, 0.1);  // a wide range for any processor, however busy
  EXPECT_LT(peak.ghz, 20);
  EXPECT_EQ(peak.operations_per_cycle % 8, 0);  // a vector of 4 multiply-adds
  EXPECT_DOUBLE_EQ(peak.gflops, peak.ghz * peak.operations_per_cycle * qkv::num_threads());
}

TEST(Bandwidth, IsPositiveAlsoForASizeThatThreadsDoNotDivide) {
  EXPECT_GT(qkv::measure_read_bandwidth((1 << 20) + 13), 0);
  EXPECT_THROW(qkv::measure_read_bandwidth(1000), std::invalid_argument);
  const qkv::ReadMeter meter((1 << 20) + 13);
  EXPECT_GE(meter.bytes(), (1 << 20) + 13);
  EXPECT_FALSE(meter.loop().empty());
  EXPECT_GT(meter.sample(), 0);
}

TEST(Bandwidth, MeasuresTheGivenMemory) {
  const std::int64_t block = qkv::measure::kReadBlock * qkv::num_threads();
  const std::vector<std::byte> memory(static_cast<std::size_t>(3 * block + 100));
  const std::span<const std::byte> all(memory);
  // A part too short to give every thread a block is left out, whatever the alignment of the others.
  const qkv::ReadMeter meter({all.subspan(1, static_cast<std::size_t>(2 * block + 70)), all.first(50)});
  EXPECT_EQ(meter.bytes(), 2 * block);
  EXPECT_GT(meter.sample(), 0);
  EXPECT_THROW(qkv::ReadMeter(std::vector{all.first(50)}), std::invalid_argument);
  EXPECT_THROW(qkv::ReadMeter(std::vector<std::span<const std::byte>>{}), std::invalid_argument);
}

TEST(Bandwidth, EveryLoopReadsItsMemoryOnly) {
  const qkv::Tensor memory({qkv::measure::kReadBlock * 2 / 8}, qkv::DType::i64);
  for (const auto& loop : qkv::measure::read_loops()) {
    SCOPED_TRACE(loop.name);
    loop.run(static_cast<const char*>(memory.raw()), qkv::measure::kReadBlock * 2);
  }
}

}  // namespace
