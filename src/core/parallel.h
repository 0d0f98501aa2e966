// SPDX-License-Identifier: Apache-2.0
// The only threading in qkv: independent tasks, handed out in order to the next free thread. A task must not depend on
// which thread runs it or what runs concurrently, so results never depend on the number of threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>

#include "core/team.h"
#include "qkv/threads.h"

namespace qkv {

// Runs task(i) for i = 0 ... count - 1 on num_threads() threads; the first exception is rethrown after all have
// finished. Called inside a task, it runs the tasks sequentially.
template <class Task>
void parallel_for(std::int64_t count, const Task& task) {
  const int threads = static_cast<int>(std::int64_t{num_threads()} < count ? std::int64_t{num_threads()} : count);
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  std::exception_ptr failure;
  std::mutex mutex;
  const auto guarded = [&](std::int64_t i) noexcept {
    try {
      task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  };
  if (Team* team = Team::current()) {
    team->work(
        count, [](const void* f, std::int64_t i) noexcept { (*static_cast<decltype(guarded)*>(f))(i); }, &guarded);
  } else {
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (std::int64_t i = 0; i < count; ++i) guarded(i);
  }
  if (failure) std::rethrow_exception(failure);
}

// Divides tasks 0 ... count - 1 among all threads: thread t starts at span_begin(count, threads, t) and proceeds in
// order; a thread that has finished steals from the end of another thread's span.
inline std::int64_t span_begin(std::int64_t count, std::int64_t threads, std::int64_t t) {
  return count / threads * t + std::min(t, count % threads);
}

// A thread's remaining tasks: the first in the lower half, one past the last in the upper half.
struct alignas(64) TaskSpan {
  std::atomic<std::uint64_t> left{0};
  void set(std::int64_t begin, std::int64_t end) noexcept {
    left = static_cast<std::uint64_t>(end) << 32 | static_cast<std::uint64_t>(begin);
  }
  static std::int64_t size(std::uint64_t left) noexcept {
    return static_cast<std::int64_t>(left >> 32) - static_cast<std::int64_t>(left & 0xffffffffu);
  }
  // Takes the first or last remaining task; -1: none left.
  std::int64_t take(bool first) noexcept {
    std::uint64_t now = left.load(std::memory_order_relaxed);
    while (size(now) > 0) {
      const std::uint64_t then = first ? now + 1 : now - (std::uint64_t{1} << 32);
      if (!left.compare_exchange_weak(now, then, std::memory_order_relaxed)) continue;
      return static_cast<std::int64_t>(first ? now & 0xffffffffu : (now >> 32) - 1);
    }
    return -1;
  }
};

// Runs task(i) for i = 0 ... count - 1, fewer than 2^32, in spans: for tasks that read memory in order.
template <class Task>
void parallel_spans(std::int64_t count, const Task& task) {
  const std::int64_t threads = std::min<std::int64_t>({num_threads(), Team::kMax, count});
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  TaskSpan spans[Team::kMax];
  for (std::int64_t t = 0; t < threads; ++t)
    spans[t].set(span_begin(count, threads, t), span_begin(count, threads, t + 1));
  parallel_for(threads, [&](std::int64_t t) {
    for (std::int64_t i = spans[t].take(true); i >= 0; i = spans[t].take(true)) task(i);
    for (;;) {
      std::int64_t most = 0, from = 0;
      for (std::int64_t other = 0; other < threads; ++other) {
        const std::int64_t left = TaskSpan::size(spans[other].left.load(std::memory_order_relaxed));
        if (left > most) most = left, from = other;
      }
      if (most == 0) return;
      if (const std::int64_t i = spans[from].take(false); i >= 0) task(i);
    }
  });
}

// Splits [0, count) into ranges of at most `grain` elements and runs task(begin, end) for each.
template <class Task>
void parallel_ranges(std::int64_t count, std::int64_t grain, const Task& task) {
  if (count <= grain) {
    if (count > 0) task(std::int64_t{0}, count);
    return;
  }
  parallel_for((count + grain - 1) / grain, [&](std::int64_t i) {
    const std::int64_t begin = i * grain;
    task(begin, begin + grain < count ? begin + grain : count);
  });
}

}  // namespace qkv
