// SPDX-License-Identifier: Apache-2.0
#include "core/parallel.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>
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

TEST(Parallel, PropagatesExceptions) {
  set_num_threads(2);
  EXPECT_THROW(parallel_for(10,
                            [](std::int64_t i) {
                              if (i == 3) throw std::runtime_error("three");
                            }),
               std::runtime_error);
  EXPECT_THROW(set_num_threads(-1), std::invalid_argument);
  set_num_threads(0);
}

TEST(Parallel, SpansRunEachTaskOnceAtAnyThreadCount) {
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    for (std::int64_t count : {0, 1, 2, 7, 1000}) {
      std::vector<int> hits(static_cast<std::size_t>(count));
      parallel_spans(count, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
      for (int h : hits) ASSERT_EQ(h, 1);
      std::int64_t end = 0;
      for (std::int64_t t = 0; t < threads; ++t) {
        EXPECT_EQ(span_begin(count, threads, t), end);
        end = span_begin(count, threads, t + 1);
      }
      EXPECT_EQ(end, count);
    }
  }
  set_num_threads(0);
}

TEST(Parallel, ATeamRunsEachTaskOnceWhetherItsThreadsSleepOrNot) {
  for (int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    std::vector<std::int64_t> hits(20);
    const std::vector<char> memory(100000);
    Team::lead([&] {
      EXPECT_EQ(Team::current() != nullptr, threads > 1);
      for (int round = 0; round < 200; ++round) {
        if (Team* team = Team::current())
          for (int t = 0; t < team->size(); ++t) team->prefetch(t, memory.data() + 100 * t, 50000);
        if (round % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
        parallel_for(20, [&](std::int64_t i) {
          EXPECT_EQ(Team::current(), nullptr);
          parallel_for(2, [&](std::int64_t) { ++hits[static_cast<std::size_t>(i)]; });
        });
        parallel_for(2, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
        parallel_spans(20, [&](std::int64_t i) { ++hits[static_cast<std::size_t>(i)]; });
      }
      Team::lead([&] { ++hits[19]; });
    });
    EXPECT_EQ(Team::current(), nullptr);
    for (std::size_t i = 0; i < hits.size(); ++i) EXPECT_EQ(hits[i], i < 2 ? 800 : i == 19 ? 601 : 600) << i;
  }
  set_num_threads(0);
}

TEST(Parallel, ATeamPropagatesExceptions) {
  set_num_threads(2);
  const auto fail = [](std::int64_t i) {
    if (i == 3) throw std::runtime_error("three");
  };
  int after = 0;
  Team::lead([&] {
    EXPECT_THROW(parallel_for(10, fail), std::runtime_error);
    EXPECT_THROW(parallel_spans(10, fail), std::runtime_error);
    parallel_for(1, [&](std::int64_t) { ++after; });
  });
  EXPECT_EQ(after, 1);
  EXPECT_THROW(Team::lead([&] { parallel_for(10, fail); }), std::runtime_error);
  EXPECT_EQ(Team::current(), nullptr);
  set_num_threads(0);
}

// OpenMP would wait forever for threads that were not forked.
TEST(Parallel, AForkedProcessComputesWithOneThread) {
  const auto compute = [] {
    int sum = 0;
    parallel_for(100, [&](std::int64_t i) {
#pragma omp atomic
      sum += static_cast<int>(i);
    });
    return sum == 4950;
  };
  set_num_threads(4);
  ASSERT_TRUE(compute());
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);
    bool refused = false;
    try {
      set_num_threads(2);
    } catch (const std::invalid_argument&) {
      refused = true;
    }
    set_num_threads(1);
    set_num_threads(0);
    _exit(compute() && num_threads() == 1 && refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(num_threads(), 4);
  EXPECT_TRUE(compute());
  set_num_threads(0);
}

}  // namespace
}  // namespace qkv
