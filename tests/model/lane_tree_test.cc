// SPDX-License-Identifier: Apache-2.0
#include "model/lane_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qkv {
namespace {

// The sum of a step of `sequences` over some lanes, split according to `cuts`, as a formula; "" if these lanes have no
// sequences.
std::string sum_of(std::int64_t sequences, const std::vector<std::int64_t>& cuts, const LaneRange& lanes = {}) {
  LaneTree tree;
  tree.begin(sequences, lanes);
  std::vector<std::string> slots(kSumSlots);
  std::int64_t first = tree.next();
  for (const std::int64_t count : cuts) {
    for (const SumStep& step : tree.take(count)) {
      std::string& to = slots.at(static_cast<std::size_t>(step.to));
      if (step.from >= 0)
        to.insert(0, 1, '(').append(1, '+').append(slots.at(static_cast<std::size_t>(step.from))).append(1, ')');
      else if (step.fresh)
        to = std::to_string(first + step.sequence);
      else
        to.append(1, ',').append(std::to_string(first + step.sequence));
    }
    first += count;
  }
  EXPECT_EQ(tree.missing(), 0);
  EXPECT_EQ(tree.slots_in_use(), slots[0].empty() ? 0 : 1);
  return slots[0];
}

TEST(LaneTree, SumsWrittenOut) {
  EXPECT_EQ(sum_of(1, {1}), "0");
  EXPECT_EQ(sum_of(2, {2}), "(0+1)");
  EXPECT_EQ(sum_of(4, {4}), "((0+1)+(2+3))");
  EXPECT_EQ(sum_of(8, {8}), "(((0+1)+(2+3))+((4+5)+(6+7)))");
  EXPECT_EQ(sum_of(16, {16}), "(((0,1+2,3)+(4,5+6,7))+((8,9+10,11)+(12,13+14,15)))");
  EXPECT_EQ(sum_of(3, {3}), "(0+(1+2))");
}

// The sums of halves, quarters and eighths of the lanes, combined pairwise, are the whole sum.
TEST(LaneTree, PartsOfTheLanesMakeTheWhole) {
  for (std::int64_t n = 1; n <= 40; ++n) {
    for (const int size : {1, 2, 4, 8}) {
      std::vector<std::string> parts;
      std::int64_t sequences = 0;
      for (int rank = 0; rank < size; ++rank) {
        const LaneRange lanes = lanes_of(rank, size);
        const std::int64_t count = lanes.end(n) - lanes.begin(n);
        EXPECT_EQ(lanes.begin(n), sequences);
        sequences += count;
        parts.push_back(sum_of(n, {count}, lanes));
        EXPECT_EQ(sum_of(n, std::vector<std::int64_t>(static_cast<std::size_t>(count), 1), lanes), parts.back());
      }
      EXPECT_EQ(sequences, n);
      for (; parts.size() > 1; parts.resize(parts.size() / 2))
        for (std::size_t i = 0; i < parts.size() / 2; ++i) {
          const std::string left = parts[2 * i], right = parts[2 * i + 1];
          parts[i] = left.empty() || right.empty() ? left + right : "(" + left + "+" + right + ")";
        }
      EXPECT_EQ(parts[0], sum_of(n, {n})) << n << " in " << size;
    }
  }
  for (const auto& [rank, size] : {std::pair{0, 3}, {0, 0}, {2, 2}, {-1, 1}, {0, 16}})
    EXPECT_THROW(lanes_of(rank, size), std::invalid_argument) << rank << " of " << size;
}

TEST(LaneTree, SplitsChangeNothing) {
  for (std::int64_t n = 1; n <= 40; ++n) {
    const std::string whole = sum_of(n, {n});
    EXPECT_EQ(sum_of(n, std::vector<std::int64_t>(static_cast<std::size_t>(n), 1)), whole);
    for (std::int64_t cut = 1; cut < n; ++cut) EXPECT_EQ(sum_of(n, {cut, n - cut}), whole);
  }
}

}  // namespace
}  // namespace qkv
