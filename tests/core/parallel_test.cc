// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

namespace qkv {
namespace {

TEST(Parallel, RunsEachTaskOnceAtAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    std::vector<int> hits(1000);
    parallel_for(1000, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
    parallel_ranges(1000, 7, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++hits[static_cast<std::size_t>(i)];
    });
    for (int h : hits) ASSERT_EQ(h, 2);
  }
  set_num_threads(0);
}

TEST(Parallel, PassesAnExceptionOn) {
  set_num_threads(2);
  EXPECT_THROW(parallel_for(10,
                            [](std::int64_t i) {
                              if (i == 3) throw std::runtime_error("three");
                            }),
               std::runtime_error);
  EXPECT_THROW(set_num_threads(-1), std::invalid_argument);
  set_num_threads(0);
}

}  // namespace
}  // namespace qkv
