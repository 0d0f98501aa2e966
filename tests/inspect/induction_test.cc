// SPDX-License-Identifier: Apache-2.0
// A two-layer model is trained on repeating random tokens until an induction head forms; the head is found by its score
// and by the next-token probability after ablating it.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/random.h"
#include "qkv/inspect.h"
#include "qkv/train.h"

namespace qkv {
namespace {

constexpr std::int64_t kCtx = 32, kVocab = 16, kSequences = 32;

ModelConfig two_layers() {
  ModelConfig c;
  c.n_layer = 2;
  c.n_head = 2;
  c.d_model = c.d_ff = 32;
  c.vocab_size = kVocab;
  c.ctx_len = kCtx;
  c.norm_gain = c.final_norm = true;
  c.embedding_norm = false;
  c.positions = Positions::rotary;
  c.rope_theta = 100;
  return c;
}

// Random tokens that repeat with a period chosen per sequence, so that only their content shows where to attend; there
// is a target only where the next token has already followed this one before.
struct Repeating {
  std::vector<std::int32_t> tokens, targets;  // [kSequences, kCtx]

  explicit Repeating(std::uint64_t step) {
    const Random random(7, step);
    std::uint64_t n = 0;
    for (std::int64_t b = 0; b < kSequences; ++b) {
      const auto period = kCtx / 4 + static_cast<std::int64_t>(random.below(n++, kCtx / 4 + 1));
      std::vector<std::int32_t> x;  // [kCtx]
      for (std::int64_t i = 0; i < kCtx; ++i)
        x.push_back(i < period ? static_cast<std::int32_t>(random.below(n++, kVocab))
                               : x[static_cast<std::size_t>(i - period)]);
      for (std::int64_t i = 0; i < kCtx; ++i)
        targets.push_back(i + 1 > period && i + 1 < kCtx ? x[static_cast<std::size_t>(i + 1)] : -1);
      tokens.insert(tokens.end(), x.begin(), x.end());
    }
  }
  Batch batch() const { return {kSequences, kCtx, tokens, targets, {}}; }
  std::int64_t count() const {
    return std::count_if(targets.begin(), targets.end(), [](std::int32_t y) { return y >= 0; });
  }
};

const HeadScores& best(const std::vector<HeadScores>& scores, double HeadScores::*kind) {
  return *std::max_element(scores.begin(), scores.end(),
                           [&](const HeadScores& a, const HeadScores& b) { return a.*kind < b.*kind; });
}

TEST(Induction, AHeadFormsInTrainingAndIsFound) {
  Model model(two_layers(), 1);
  EXPECT_LT(best(head_scores(model), &HeadScores::induction).induction, 0.1) << "before training";
  const auto adam = make_optimizer("adamw", model);
  TrainConfig config;
  config.weight_decay = 0;
  config.beta2 = 0.98;
  double loss = 0;
  for (std::int64_t step = 1; step <= 450; ++step) {
    const Repeating data(static_cast<std::uint64_t>(step));
    std::vector<Tensor> gradients = model.zeros_like_parameters();
    loss = model.loss_and_gradients(data.batch(), 1.0 / static_cast<double>(data.count()), gradients).mean();
    adam->update(*model.change_parameters(), gradients, config,
                 {step, 0.01 * std::min(1.0, static_cast<double>(step) / 20), 1.0});
  }
  EXPECT_LT(loss, 0.5) << "guessing gives ln 16 = 2.77";

  const std::vector<HeadScores> scores = head_scores(model);
  const HeadScores& induction = best(scores, &HeadScores::induction);
  EXPECT_GT(induction.induction, 0.6);
  EXPECT_EQ(induction.layer, 1) << "it uses what a head of the previous layer copied";
  EXPECT_EQ(best(scores, &HeadScores::previous_token).layer, 0);
  EXPECT_GT(best(scores, &HeadScores::previous_token).previous_token, 0.3);
  for (const HeadScores& s : scores) {
    if (s.layer == 0) {
      EXPECT_LT(s.induction, 0.3) << s.head;
    }
  }

  // 3 1 4 5 9 2 6 8 3 1 4 5: with the head, the next token is 9; without it the model cannot predict it.
  const std::vector<std::int32_t> text{3, 1, 4, 5, 9, 2, 6, 8, 3, 1, 4, 5};
  const std::vector<HeadId> head{{induction.layer, induction.head}};
  const HeadEffect effect = head_effect(model, text, head);
  EXPECT_GT(effect.before[9], 0.6);
  EXPECT_LT(effect.after[9], effect.before[9] / 2);
  EXPECT_GT(effect.kl, 0.3);
}

}  // namespace
}  // namespace qkv
