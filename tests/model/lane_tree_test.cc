// SPDX-License-Identifier: Apache-2.0
#include "model/lane_tree.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace qkv {
namespace {

// The sum that a step of `sequences` makes when it is cut as `cuts` says, written out.
std::string sum_of(std::int64_t sequences, const std::vector<std::int64_t>& cuts) {
  LaneTree tree;
  tree.begin(sequences);
  std::vector<std::string> slots(kSumSlots);
  std::int64_t first = 0;
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
  EXPECT_EQ(tree.slots_in_use(), 1);
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

TEST(LaneTree, CutsChangeNothing) {
  for (std::int64_t n = 1; n <= 40; ++n) {
    const std::string whole = sum_of(n, {n});
    EXPECT_EQ(sum_of(n, std::vector<std::int64_t>(static_cast<std::size_t>(n), 1)), whole);
    for (std::int64_t cut = 1; cut < n; ++cut) EXPECT_EQ(sum_of(n, {cut, n - cut}), whole);
  }
}

}  // namespace
}  // namespace qkv
