// SPDX-License-Identifier: Apache-2.0
// A step's gradient computed from parts of its lanes, as 2, 4 or 8 processes would, has the same bits as one sum.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "model/tiny_models.h"
#include "qkv/model.h"

namespace qkv {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr double kScale = 0.125;

// Adds the sequences of the lanes, at most two at a time.
void add_lanes(Model& model, const test::Tokens& tokens, const LaneRange& lanes, GradientSum& sum) {
  sum.begin(tokens.batch, lanes);
  const std::int64_t end = lanes.end(tokens.batch);
  for (std::int64_t at = lanes.begin(tokens.batch); at < end; at += 2)
    model.loss_and_gradients(tokens.sequences(at, std::min<std::int64_t>(2, end - at)), kScale, sum);
}

void expect_parts_are_the_whole(Model& model, const test::Tokens& tokens, const std::vector<bool>& wanted) {
  GradientSum whole(model, wanted);
  add_lanes(model, tokens, {}, whole);
  const std::vector<Tensor>& expected = whole.finish();
  for (const int size : {2, 4, 8}) {
    SCOPED_TRACE(std::to_string(tokens.batch) + " sequences, " + std::to_string(size) + " parts");
    std::vector<std::unique_ptr<GradientSum>> parts;
    std::vector<double> losses;
    for (int rank = 0; rank < size; ++rank) {
      parts.push_back(std::make_unique<GradientSum>(model, wanted));
      add_lanes(model, tokens, lanes_of(rank, size), *parts.back());
      losses.insert(losses.end(), parts.back()->losses().begin(), parts.back()->losses().end());
    }
    EXPECT_EQ(losses, whole.losses());
    // Adds each pair on alternating sides: left + right has the same bits as right + left.
    for (bool left = true; parts.size() > 1; left = !left) {
      std::vector<std::unique_ptr<GradientSum>> sums;
      for (std::size_t i = 0; i < parts.size(); i += 2) {
        parts[left ? i : i + 1]->add(parts[left ? i + 1 : i]->partial());
        sums.push_back(std::move(parts[left ? i : i + 1]));
      }
      parts = std::move(sums);
    }
    const std::vector<Tensor>& found = parts[0]->finish();
    for (std::size_t p = 0; p < found.size(); ++p) {
      ASSERT_EQ(found[p].raw() != nullptr, wanted[p]);
      if (!wanted[p]) continue;
      EXPECT_EQ(std::memcmp(found[p].raw(), expected[p].raw(), expected[p].bytes()), 0) << model.infos()[p].name;
    }
  }
}

TEST(GradientLanes, PartsOfTheLanesMatchTheWholeBitForBit) {
  for (const auto& [name, config] : test::tiny_models()) {
    SCOPED_TRACE(name);
    Model model(config, 1);
    test::disturb<float>(model, 0.1, 2);
    std::vector<bool> all(model.infos().size(), true), some = all;
    for (std::size_t i = 0; i < some.size(); ++i) some[i] = i % 3 == 1;
    for (const std::int64_t batch : {1, 2, 3, 5, 7, 8, 11, 16, 21}) {
      const test::Tokens tokens = test::random_tokens(config, batch, 9, 3);
      expect_parts_are_the_whole(model, tokens, all);
      if (batch == 11) expect_parts_are_the_whole(model, tokens, some);
    }
    model.set_compute_dtype(DType::bf16);
    expect_parts_are_the_whole(model, test::random_tokens(config, 13, 9, 3), all);
  }
  Model model(test::tiny_gpt2(), 1, DType::f64);
  expect_parts_are_the_whole(model, test::random_tokens(test::tiny_gpt2(), 6, 9, 3),
                             std::vector<bool>(model.infos().size(), true));
}

// The losses of a step's sequences, added in order, are its loss.
TEST(GradientLanes, EachSequenceHasItsLoss) {
  Model model(test::tiny_llama(), 1);
  const test::Tokens tokens = test::random_tokens(test::tiny_llama(), 6, 9, 3);
  GradientSum sum(model);
  sum.begin(6);
  const Loss loss = model.loss_and_gradients(tokens, kScale, sum);
  ASSERT_EQ(sum.losses().size(), 6u);
  EXPECT_EQ(std::accumulate(sum.losses().begin(), sum.losses().end(), 0.0), loss.sum);
  EXPECT_EQ(sum.losses()[4], model.loss(tokens.sequences(4, 1)).sum);
}

TEST(GradientLanes, RefusesPartsThatAreNotSubtrees) {
  Model model(test::tiny_andrea(), 1);
  GradientSum a(model), b(model), other(model, std::vector<bool>(model.infos().size(), false));
  EXPECT_THROW(a.begin(0), std::invalid_argument);
  for (const LaneRange lanes : {LaneRange{0, 3}, LaneRange{1, 2}, LaneRange{8, 1}, LaneRange{-1, 1}, LaneRange{0, 0}})
    EXPECT_THROW(a.begin(8, lanes), std::invalid_argument) << lanes.first << ' ' << lanes.count;
  const test::Tokens tokens = test::random_tokens(test::tiny_andrea(), 8, 9, 3);
  a.begin(8, {0, 2});
  EXPECT_THAT([&] { a.partial(); }, ThrowsMessage<std::invalid_argument>(HasSubstr("expected 2 more sequences")));
  add_lanes(model, tokens, {0, 2}, a);
  EXPECT_THAT([&] { a.finish(); }, ThrowsMessage<std::invalid_argument>(HasSubstr("all 8 lanes; found lanes 0 to 1")));
  for (const LaneRange lanes : {LaneRange{4, 2}, LaneRange{2, 1}, LaneRange{0, 2}}) {
    add_lanes(model, tokens, lanes, b);
    EXPECT_THROW(a.add(b.partial()), std::invalid_argument) << lanes.first << ' ' << lanes.count;
  }
  other.begin(1, {2, 2});
  EXPECT_THROW(a.add(other.partial()), std::invalid_argument);
}

}  // namespace
}  // namespace qkv
