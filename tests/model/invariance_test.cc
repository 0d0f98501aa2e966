// SPDX-License-Identifier: Apache-2.0
// What must not change a bit: threads, the rest of the batch, padding, later tokens.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/threads.h"

namespace qkv {
namespace {

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

void expect_same_bits(const Model& model, const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t p = 0; p < a.size(); ++p) EXPECT_TRUE(same_bits(a[p], b[p])) << model.infos()[p].name;
}

// Sizes larger than tiles and groups of sequences; a vocabulary so large that a sequence's logits are split.
std::vector<test::NamedConfig> models() {
  std::vector<test::NamedConfig> list = test::tiny_models();
  for (test::NamedConfig& one : test::models_of_many_options()) list.push_back(std::move(one));
  for (auto& [name, c] : list) {
    test::change_layers(c, [](LayerConfig& one) {
      one.head_dim = one.v_head_dim = 24;
      one.d_ff = one.d_ff == 40 ? 90 : 200;
      if (one.window_left > 0) one.window_left = 40;
    });
    c.d_model = 72;
    c.vocab_size = 131;
    c.ctx_len = 150;
  }
  return list;
}

TEST(Invariance, AnyNumberOfThreads) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    const test::Tokens tokens = test::random_tokens(c, 5, 150, 3);
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      model.set_compute_dtype(compute_dtype);
      set_num_threads(1);
      auto expected = model.zeros_like_parameters();
      const Loss loss = model.loss_and_gradients(tokens, 0.01, expected);
      const Tensor logits = model.logits(tokens);
      for (int threads : {2, 3, 4, 8}) {
        set_num_threads(threads);
        auto gradients = model.zeros_like_parameters();
        EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, gradients).sum, loss.sum);
        expect_same_bits(model, gradients, expected);
        EXPECT_TRUE(same_bits(model.logits(tokens), logits));
      }
      set_num_threads(0);
    }
  }
}

// A step with all sequences at once gives the same loss, gradients and logits as one split according to `cuts`.
void expect_batch_is_its_parts(Model& model, const test::Tokens& tokens, const std::vector<std::int64_t>& cuts) {
  const ModelConfig& c = model.config();
  GradientSum together(model), in_parts(model);
  together.begin(tokens.batch);
  const Loss loss = model.loss_and_gradients(tokens, 0.01, together);
  Loss sum;
  const Tensor logits = model.logits(tokens);
  in_parts.begin(tokens.batch);
  std::int64_t first = 0;
  for (const std::int64_t count : cuts) {
    const test::Tokens part = tokens.sequences(first, count);
    const Loss more = model.loss_and_gradients(part, 0.01, in_parts);
    sum.sum += more.sum;
    sum.count += more.count;
    const Tensor alone = model.logits(part);
    const std::size_t before = static_cast<std::size_t>(first * tokens.ctx * c.vocab_size) * dtype_size(model.dtype());
    EXPECT_EQ(std::memcmp(static_cast<const char*>(logits.raw()) + before, alone.raw(), alone.bytes()), 0)
        << "sequence " << first;
    first += count;
  }
  if (cuts.size() == static_cast<std::size_t>(tokens.batch)) {
    EXPECT_EQ(loss.sum, sum.sum);
  }
  EXPECT_EQ(loss.count, sum.count);
  expect_same_bits(model, together.finish(), in_parts.finish());
}

template <class T>
void expect_batch_is_its_sequences(const ModelConfig& c, const test::Tokens& tokens) {
  Model model(c, 1, dtype_of<T>);
  test::disturb<T>(model, 0.1, 2);
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(tokens.batch), 1);
  expect_batch_is_its_parts(model, tokens, ones);
  if (model.dtype() != DType::f32) return;
  model.set_compute_dtype(DType::bf16);
  expect_batch_is_its_parts(model, tokens, ones);
}

TEST(Invariance, FourSequencesAreFourTimesOneAccumulated) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    expect_batch_is_its_sequences<float>(c, test::random_tokens(c, 4, 70, 3));
  }
  // More tokens than are processed at once.
  ModelConfig c = test::tiny_andrea();
  c.ctx_len = 900;
  expect_batch_is_its_sequences<float>(c, test::random_tokens(c, 5, 900, 3));
}

// The layers of ANDREA-120M and LLaMA-135M, one of each, in a context long enough for several tiles.
TEST(Invariance, TheLayersOfPresets) {
  for (const char* name : {"andrea-120m", "llama-135m"}) {
    SCOPED_TRACE(name);
    ModelConfig c = preset(name);
    c.n_layer = 1;
    c.vocab_size = 300;
    Model model(c, 1);
    const test::Tokens tokens = test::random_tokens(c, 4, 130, 3);
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      model.set_compute_dtype(compute_dtype);
      expect_batch_is_its_parts(model, tokens, {1, 1, 1, 1});
      set_num_threads(1);
      auto expected = model.zeros_like_parameters();
      const Loss loss = model.loss_and_gradients(tokens, 0.01, expected);
      for (const int threads : {2, 3, 8}) {
        set_num_threads(threads);
        auto found = model.zeros_like_parameters();
        EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, found).sum, loss.sum);
        expect_same_bits(model, found, expected);
      }
      set_num_threads(0);
    }
  }
}

TEST(Invariance, AStepMayBeSplitAnywhere) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    const test::Tokens tokens = test::random_tokens(c, 19, 12, 3);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{1, 18}, {7, 5, 7}, {3, 3, 3, 3, 3, 4}, {10, 9}, {16, 1, 1, 1}})
      expect_batch_is_its_parts(model, tokens, cuts);
  }
}

TEST(Invariance, AStepOfTheReferenceMayBeSplitAnywhere) {
  for (const auto& [name, c] : test::tiny_models()) {
    SCOPED_TRACE(name);
    Model model(c, 1, DType::f64);
    test::disturb<double>(model, 0.1, 2);
    const test::Tokens tokens = test::random_tokens(c, 19, 5, 3);
    for (const std::vector<std::int64_t>& cuts :
         {std::vector<std::int64_t>{1, 18}, {7, 5, 7}, {2, 2, 2, 2, 2, 2, 2, 2, 2, 1}, {10, 9}, {16, 1, 1, 1}})
      expect_batch_is_its_parts(model, tokens, cuts);
  }
}

TEST(Invariance, DropoutDependsOnlyOnSeedStepAndIndices) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    model.set_dropout({0.2, 5, 3});
    test::Tokens tokens = test::random_tokens(c, 5, 60, 3);
    tokens.lengths = {60, 7, 60, 0, 33};  // a sequence by itself is cut to its length
    auto first = model.zeros_like_parameters(), other = first;
    set_num_threads(1);
    const double loss = model.loss_and_gradients(tokens, 0.01, first).sum;
    for (const int threads : {2, 8}) {
      set_num_threads(threads);
      auto again = model.zeros_like_parameters();
      EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, again).sum, loss);
      expect_same_bits(model, first, again);
    }
    set_num_threads(0);
    expect_batch_is_its_parts(model, tokens, {1, 3, 1});
    expect_batch_is_its_parts(model, tokens, {1, 1, 1, 1, 1});
    model.set_recompute(true);
    expect_batch_is_its_parts(model, tokens, {2, 3});
    model.set_recompute(false);
    model.set_dropout({0.2, 5, 4});
    EXPECT_NE(model.loss_and_gradients(tokens, 0.01, other).sum, loss);
    EXPECT_THROW(model.set_dropout({1.0, 0, 0}), std::invalid_argument);
  }
}

TEST(Invariance, RecomputedActivationsHaveTheSameBits) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    const test::Tokens tokens = test::random_tokens(c, 3, 50, 3);
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      model.set_compute_dtype(compute_dtype);
      auto kept = model.zeros_like_parameters(), recomputed = model.zeros_like_parameters();
      const Loss loss = model.loss_and_gradients(tokens, 0.01, kept);
      model.set_recompute(true);
      EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, recomputed).sum, loss.sum);
      model.set_recompute(false);
      expect_same_bits(model, kept, recomputed);
    }
  }
}

// Small models of every option: batches, padding, threads and recomputation.
TEST(Invariance, EveryOption) {
  for (const auto& [name, c] : test::models_of_many_shapes()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    test::Tokens tokens = test::random_tokens(c, 4, c.ctx_len, 3);
    tokens.lengths = {c.ctx_len, 0, (c.ctx_len + 1) / 2, 1};
    for (const DType compute_dtype : {DType::f32, DType::bf16}) {
      model.set_compute_dtype(compute_dtype);
      set_num_threads(1);
      expect_batch_is_its_parts(model, tokens, {1, 1, 1, 1});
      auto kept = model.zeros_like_parameters(), recomputed = kept, threads = kept;
      const Loss loss = model.loss_and_gradients(tokens, 0.01, kept);
      model.set_recompute(true);
      EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, recomputed).sum, loss.sum);
      model.set_recompute(false);
      expect_same_bits(model, kept, recomputed);
      set_num_threads(3);
      EXPECT_EQ(model.loss_and_gradients(tokens, 0.01, threads).sum, loss.sum);
      expect_same_bits(model, kept, threads);
      set_num_threads(0);
    }
  }
}

TEST(Invariance, StepsThatDoNotFitAreRefused) {
  const ModelConfig c = test::tiny_andrea();
  Model model(c, 1);
  const test::Tokens tokens = test::random_tokens(c, 3, 5, 3);
  GradientSum sum(model);
  EXPECT_THROW(sum.begin(0), std::invalid_argument);
  sum.begin(2);
  EXPECT_THROW(model.loss_and_gradients(tokens, 1, sum), std::invalid_argument);
  sum.begin(4);
  model.loss_and_gradients(tokens, 1, sum);
  EXPECT_THROW(sum.finish(), std::invalid_argument);
  Model wide(c, 1, DType::f64);
  EXPECT_THROW(wide.loss_and_gradients(tokens, 1, sum), std::invalid_argument);
  EXPECT_THROW(wide.set_compute_dtype(DType::bf16), std::invalid_argument);
  EXPECT_THROW(model.set_compute_dtype(DType::f16), std::invalid_argument);
}

TEST(Invariance, PaddedSequencesAreTheirUnpaddedSelves) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    test::Tokens tokens = test::random_tokens(c, 5, 70, 4);
    tokens.lengths = {70, 1, 0, 33, 64};
    for (std::int64_t b = 0; b < 5; ++b)  // the contents of the padding are ignored
      for (std::int64_t t = tokens.lengths[static_cast<std::size_t>(b)]; t < 70; ++t)
        tokens.tokens[static_cast<std::size_t>(b * 70 + t)] = tokens.targets[static_cast<std::size_t>(b * 70 + t)] =
            b == 3 ? std::numeric_limits<std::int32_t>::max() : -5;
    expect_batch_is_its_sequences<float>(c, tokens);
    expect_batch_is_its_sequences<double>(c, tokens);
  }
}

TEST(Invariance, TheFutureChangesNothingEarlier) {
  for (const auto& [name, c] : models()) {
    SCOPED_TRACE(name);
    Model model(c, 1);
    test::disturb<float>(model, 0.1, 2);
    const std::int64_t ctx = 100;
    test::Tokens tokens = test::random_tokens(c, 2, ctx, 5);
    const Tensor before = model.logits(tokens);
    for (const std::int64_t t : {99, 64, 31, 1}) {
      test::Tokens changed = tokens;
      for (std::int64_t i = t; i < ctx; ++i) {
        std::int32_t& token = changed.tokens[static_cast<std::size_t>(ctx + i)];
        token = (token + 1 + static_cast<std::int32_t>(i % 7)) % 131;
      }
      const Tensor after = model.logits(changed);
      const std::int64_t same = (ctx + t) * c.vocab_size;
      EXPECT_EQ(std::memcmp(before.raw(), after.raw(), static_cast<std::size_t>(same) * sizeof(float)), 0);
      EXPECT_NE(std::memcmp(before.data() + same, after.data() + same,
                            static_cast<std::size_t>(c.vocab_size) * sizeof(float)),
                0);
    }
    // Later tokens get no gradient from earlier ones either: only rows visible to a counted target change.
    test::Tokens early = tokens.sequence(0);
    std::fill(early.targets.begin() + 10, early.targets.end(), -1);
    test::Tokens changed = early;
    for (std::size_t i = 10; i < 100; ++i) changed.tokens[i] = (changed.tokens[i] + 3) % 131;
    auto a = model.zeros_like_parameters(), b = model.zeros_like_parameters();
    EXPECT_EQ(model.loss_and_gradients(early, 1.0, a).sum, model.loss_and_gradients(changed, 1.0, b).sum);
    for (std::size_t p = 0; p < a.size(); ++p)
      for (std::int64_t i = 0; i < a[p].size(); ++i)
        ASSERT_EQ(a[p].data()[i], b[p].data()[i]) << model.infos()[p].name;  // -0 equals 0
  }
}

TEST(Invariance, RepeatingAndOtherWorkInBetweenChangeNothing) {
  const ModelConfig c = models()[1].config;
  Model model(c, 1);
  const test::Tokens tokens = test::random_tokens(c, 3, 90, 6), other = test::random_tokens(c, 6, 150, 7);
  auto first = model.zeros_like_parameters(), second = model.zeros_like_parameters(),
       ignored = model.zeros_like_parameters();
  model.loss_and_gradients(tokens, 0.5, first);
  model.loss_and_gradients(other, 0.5, ignored);
  model.logits(test::random_tokens(c, 1, 2, 8));
  model.loss_and_gradients(tokens, 0.5, second);
  expect_same_bits(model, first, second);
}

}  // namespace
}  // namespace qkv
