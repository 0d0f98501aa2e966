// SPDX-License-Identifier: Apache-2.0
#include "text/piece_counts.h"

#include <gmock/gmock.h>

#include <map>

#include "core/random.h"

namespace qkv {
namespace {

using testing::ElementsAre;
using testing::Pair;

TEST(PieceCounts, CountsPiecesOfAnyBytes) {
  PieceCounts counts;
  counts.add_text("low low lower \xFF");
  counts.add("low", 5);
  EXPECT_THAT(counts.sorted(),
              ElementsAre(Pair(" ", 1), Pair(" low", 1), Pair(" lower", 1), Pair("low", 6), Pair("\xFF", 1)));
  EXPECT_EQ(counts.size(), 5u);
}

TEST(PieceCounts, AgreesWithAMapAlsoWhenMerged) {
  const Random random(4);
  std::map<std::string, std::int64_t> wanted;
  PieceCounts whole, joined;
  for (std::uint64_t part = 0; part < 20; ++part) {
    PieceCounts some;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      const std::uint64_t draw = part * 2000 + i;
      std::string piece;
      for (std::uint64_t n = 1 + random.below(4 * draw, 20); n > 0; --n)
        piece += static_cast<char>(random.below(4 * draw + 1, 3) + n % 4);
      ++wanted[piece];
      whole.add(piece);
      some.add(piece);
    }
    joined.merge(some);
  }
  ASSERT_EQ(whole.size(), wanted.size());
  const auto sorted = whole.sorted();
  EXPECT_TRUE(std::equal(sorted.begin(), sorted.end(), wanted.begin(),
                         [](const auto& a, const auto& b) { return a.first == b.first && a.second == b.second; }));
  EXPECT_EQ(joined.sorted(), sorted);
}

TEST(PieceCounts, DropsTheRarestPastItsLimits) {
  PieceCounts few({8, 1000}), part;
  for (int i = 0; i < 9; ++i) part.add(std::string(1, static_cast<char>('a' + i)), i < 3 ? 10 : i < 6 ? 2 : 1);
  few.merge(part);
  // Pieces seen once are dropped, then those seen twice: at most half of eight stay.
  EXPECT_THAT(few.sorted(), ElementsAre(Pair("a", 10), Pair("b", 10), Pair("c", 10)));
  EXPECT_EQ(few.forgotten(), 6);
  PieceCounts short_ones({100, 20}), long_one;
  long_one.add(std::string(30, 'x'), 100);
  long_one.add("y", 200);
  short_ones.merge(long_one);
  EXPECT_THAT(short_ones.sorted(), ElementsAre(Pair("y", 200)));
}

}  // namespace
}  // namespace qkv
