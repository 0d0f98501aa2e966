// SPDX-License-Identifier: Apache-2.0
#include "page/series.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace qkv {
namespace {

TEST(Series, KeepsAFewNumbersAsTheyAre) {
  Series series(4);
  for (int i = 1; i <= 4; ++i) series.add(10 * i, 0.5 * i);
  ASSERT_EQ(series.buckets().size(), 4U);
  EXPECT_EQ(series.width(), 1);
  EXPECT_EQ(series.buckets()[2].first, 30);
  EXPECT_EQ(series.buckets()[2].last, 30);
  EXPECT_EQ(series.buckets()[2].mean(), 1.5);
}

TEST(Series, MergesNeighbours) {
  Series series(4);
  for (int step = 0; step <= 4; ++step) series.add(step, step * step);  // 0 1 | 4 9 | 16
  ASSERT_EQ(series.buckets().size(), 3U);
  EXPECT_EQ(series.width(), 2);
  const Series::Bucket& second = series.buckets()[1];
  EXPECT_EQ(second.first, 2);
  EXPECT_EQ(second.last, 3);
  EXPECT_EQ(second.least, 4);
  EXPECT_EQ(second.greatest, 9);
  EXPECT_EQ(second.mean(), 6.5);
  EXPECT_EQ(second.count, 2);
  series.add(5, 25);  // merged with 16
  ASSERT_EQ(series.buckets().size(), 3U);
  EXPECT_EQ(series.buckets()[2].mean(), 20.5);
}

TEST(Series, KeepsASpikeOfOneStepInAMillion) {
  Series series;
  double sum = 0;
  for (std::int64_t step = 1; step <= 1'000'000; ++step) {
    const double value = step == 654'321 ? 99 : 1 + 1e-6 * static_cast<double>(step % 7);
    series.add(step, value);
    sum += value;
  }
  EXPECT_LE(series.buckets().size(), 2048U);
  EXPECT_GE(series.buckets().size(), 1024U - 1);
  double greatest = 0, total = 0;
  std::int64_t count = 0, at = 0;
  for (const Series::Bucket& bucket : series.buckets()) {
    if (bucket.greatest > greatest) greatest = bucket.greatest, at = bucket.first;
    total += bucket.sum;
    count += bucket.count;
  }
  EXPECT_EQ(greatest, 99);
  EXPECT_LE(at, 654'321);
  EXPECT_GT(at + series.width(), 654'321);
  EXPECT_EQ(count, 1'000'000);
  EXPECT_NEAR(total, sum, 1e-4);
}

TEST(Series, OmitsValuesThatCannotBeShown) {
  Series series(2);
  series.add(5, std::nan(""));
  series.add(6, std::numeric_limits<double>::infinity());
  series.add(-1, 1);
  EXPECT_TRUE(series.buckets().empty());
  series.add(7, 1);
  series.add(3, 1);  // out of order
  ASSERT_EQ(series.buckets().size(), 1U);
  EXPECT_EQ(series.buckets()[0].count, 1);
}

TEST(Series, AcceptsStepsOfAnySize) {
  Series series(2);
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t step : {std::int64_t{0}, most / 4, most / 3, most / 2, most - 1, most}) series.add(step, 1);
  EXPECT_LE(series.buckets().size(), 3U);
}

TEST(Marks, MergeCloseEventsAndCountThem) {
  Marks marks("skipped", 2);
  marks.add(4, "first");
  marks.add(5, "second");
  EXPECT_EQ(marks.marks().size(), 2U);
  marks.add(100);
  ASSERT_EQ(marks.marks().size(), 2U);
  EXPECT_EQ(marks.marks()[0].first, 4);
  EXPECT_EQ(marks.marks()[0].last, 5);
  EXPECT_EQ(marks.marks()[0].count, 2);
  EXPECT_EQ(marks.marks()[0].text, "first");
  EXPECT_EQ(marks.total(), 3);
}

}  // namespace
}  // namespace qkv
