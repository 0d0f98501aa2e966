// SPDX-License-Identifier: Apache-2.0
#include "qkv/training_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "linalg/packed_product.h"
#include "qkv/measure.h"
#include "qkv/optimizer.h"

namespace qkv {
namespace {

ModelConfig andrea() { return preset("andrea-120m").resolved(); }

TEST(TrainingMemory, CountsKnownBuffers) {
  const ModelConfig c = andrea();
  const TrainingMemory f32 = training_memory(c, {.batch_size = 1, .threads = 1});
  EXPECT_EQ(f32.weights, parameter_count(c) * 4);
  EXPECT_EQ(f32.moments, parameter_count(c) * 8);
  EXPECT_EQ(f32.gradients, f32.weights) << "one sequence: no partial sums";
  // Matrices in two layouts where they are packed; the vocabulary of 8449 is padded to 8512.
  const auto copies = [](DType operand) { return packed_products(operand) ? 2 : 1; };
  const std::int64_t elements = matrix_parameters(c) + 768 * (8512 - 8449);
  EXPECT_EQ(f32.operands, copies(DType::f32) * 4 * elements);
  const TrainingMemory bf16 = training_memory(c, {.batch_size = 1, .bf16 = true, .threads = 1});
  EXPECT_EQ(bf16.weights, f32.weights);
  EXPECT_EQ(bf16.operands, copies(DType::bf16) * 2 * elements);
  EXPECT_LT(bf16.activations, f32.activations);
  const TrainingMemory again = training_memory(c, {.batch_size = 1, .bf16 = true, .recompute = true, .threads = 1});
  EXPECT_LT(2 * again.activations, bf16.activations);
  EXPECT_EQ(again.total() - again.activations, bf16.total() - bf16.activations);
}

TEST(TrainingMemory, CountsTheChosenOptimizer) {
  const ModelConfig c = andrea();
  TrainingShape shape{.batch_size = 1, .saves = true, .threads = 1};
  const TrainingMemory adamw = training_memory(c, shape);
  EXPECT_EQ(adamw.copy, adamw.weights + adamw.moments);
  shape.optimizer = "muon";
  const TrainingMemory muon = training_memory(c, shape);
  const OptimizerPlan plan = plan_optimizer("muon", parameter_infos(c));
  EXPECT_EQ(muon.moments, 4 * plan.elements());
  EXPECT_EQ(muon.copy, muon.weights + muon.moments - 4 * plan.work);
  // One number per weight of the layers' matrices instead of two.
  const std::int64_t matrices = matrix_parameters(c) - c.d_model * c.vocab_size;
  EXPECT_EQ(adamw.moments - muon.moments, 4 * (matrices - plan.work));
  shape.optimizer = "sgd";
  EXPECT_THROW(training_memory(c, shape), std::invalid_argument);
}

TEST(TrainingMemory, CountsAdaptersAndTheMatricesTheyChange) {
  const ModelConfig c = andrea();
  const LoraAdapters adapters = make_lora(c, {.rank = 4, .alpha = 8});
  std::int64_t count = 0;
  for (const Tensor& value : adapters.values) count += value.size();
  const std::int64_t adapted = c.n_layer * 4 * c.d_model * c.d_model;  // wq, wk, wv and wo
  TrainingShape shape{.batch_size = 1, .saves = true, .threads = 1};
  shape.adapters = &adapters;
  const TrainingMemory memory = training_memory(c, shape);
  EXPECT_EQ(memory.weights, 4 * (parameter_count(c) + adapted + count));
  EXPECT_EQ(memory.moments, 4 * 2 * count);
  EXPECT_EQ(memory.gradients, 4 * (adapted + count));
  EXPECT_EQ(memory.copy, 0);
}

// The sequences of one pass count up to 2048 tokens; the rest are processed afterwards.
TEST(TrainingMemory, GrowsWithTheTokensOfAPass) {
  const ModelConfig c = andrea();
  const auto activations = [&](std::int64_t batch) { return training_memory(c, {.batch_size = batch}).activations; };
  EXPECT_EQ(activations(2), 2 * activations(1));
  EXPECT_EQ(activations(4), activations(2));
  EXPECT_EQ(activations(64), activations(2));
  EXPECT_EQ(training_memory(c, {.batch_size = 4, .ctx_len = 256}).activations, activations(1));
}

// The tokens of a step and their targets are all in memory: with very many short sequences they dominate.
TEST(TrainingMemory, CountsTheTokensOfAStep) {
  ModelConfig c = andrea();
  c.ctx_len = 16;
  const auto work = [&](std::int64_t batch, std::int64_t accumulated) {
    return training_memory(c, {.batch_size = batch, .grad_accum = accumulated, .threads = 1}).work;
  };
  EXPECT_EQ(work(100'000'000, 1) - work(50'000'000, 1), 50'000'000LL * 16 * 8);
  EXPECT_EQ(work(2048, 8) - work(2048, 1), 7 * 2048 * 16 * 8);
  c.ctx_len = 1 << 30;
  EXPECT_THROW(work(std::int64_t{1} << 40, 1), std::invalid_argument);
}

TEST(TrainingMemory, FindsABatchThatFits) {
  const ModelConfig c = andrea();
  const TrainingShape asked{.batch_size = 2, .threads = 1};
  const std::int64_t two = training_memory(c, asked).total();
  EXPECT_EQ(training_shape_within(c, asked, two)->batch_size, 2);
  const auto one = training_shape_within(c, asked, two - 1);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->batch_size, 1);
  EXPECT_EQ(one->grad_accum, 2);
  EXPECT_LE(training_memory(c, *one).total(), two - 1);
  // Smaller than the smallest batch: more micro-batches may need partial gradient sums.
  const auto least = [&](bool recompute) {
    std::int64_t bytes = INT64_MAX;
    for (const std::int64_t batch : {1, 2}) {
      const TrainingShape cut{.batch_size = batch, .grad_accum = 2 / batch, .recompute = recompute, .threads = 1};
      bytes = std::min(bytes, training_memory(c, cut).total());
    }
    return bytes;
  };
  const auto recomputed = training_shape_within(c, asked, least(false) - 1);
  ASSERT_TRUE(recomputed);
  EXPECT_TRUE(recomputed->recompute);
  EXPECT_EQ(recomputed->ctx_len, 1024);
  const auto shorter = training_shape_within(c, asked, least(true) - 1);
  ASSERT_TRUE(shorter);
  EXPECT_EQ(shorter->ctx_len, 512);
  EXPECT_FALSE(training_shape_within(c, asked, parameter_count(c) * 16));
}

TEST(TrainingMemory, RefusesInvalidSizesAndOverflow) {
  EXPECT_THROW(training_memory(andrea(), {.batch_size = 0}), std::invalid_argument);
  EXPECT_THROW(training_memory(andrea(), {.grad_accum = 0}), std::invalid_argument);
  ModelConfig c;
  c.d_model = c.d_ff = std::int64_t{1} << 28;
  c.n_head = 1;
  c.n_layer = 1000;
  EXPECT_THROW(training_memory(c.resolved(), {}), std::invalid_argument);
  EXPECT_THROW(training_memory(andrea(), {.batch_size = INT64_MAX}), std::invalid_argument);
  EXPECT_NO_THROW(training_memory(andrea(), {.batch_size = std::int64_t{1} << 40}));
}

TEST(TrainingMemory, TheProcessHasMemory) { EXPECT_GT(memory_for_this_process(), 1 << 20); }

}  // namespace
}  // namespace qkv
