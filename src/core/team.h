// SPDX-License-Identifier: Apache-2.0
// Threads that stay together through many short computations, as reading one token is: between two tasks they wait
// awake, so that handing out the next ones costs a fraction of a microsecond, and while they wait they ask memory for
// what they were told will be read next. parallel_for (core/parallel.h) uses the team of its thread, if there is one.
#pragma once

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>

#include "qkv/threads.h"

namespace qkv {

class Team {
 public:
  using Task = void (*)(const void* context, std::int64_t i) noexcept;

  // Runs body() on this thread, with a team of num_threads() threads beside it, and rethrows what it throws. Without
  // one where there is but one thread, within a task, or within another team. OpenMP gives body() no further threads.
  template <class Body>
  static void lead(const Body& body);
  // The team that this thread leads, unless it is at work in a task; else null.
  static Team* current() noexcept { return current_; }

  int size() const noexcept { return size_; }
  // task(context, i) for i = 0 ... count - 1. Thread i begins with task i if there are no more tasks than threads. A
  // thread that does not come in time is not waited for: the others do all.
  void work(std::int64_t count, Task task, const void* context) noexcept;
  // What thread i will read next: it may ask for these bytes while it waits, once. No result depends on it.
  void prefetch(int thread, const void* at, std::int64_t bytes) noexcept;

  static constexpr int kMost = 64;                                      // threads
  static constexpr std::int64_t kMostExpected = std::int64_t{1} << 18;  // bytes that are worth asking for

 private:
  explicit Team(int size) noexcept : size_(size) {}
  void follow(int thread) noexcept;
  void run_tasks(int thread) noexcept;
  // Until value is no longer `old`.
  void wait(const std::atomic<std::uint32_t>& value, std::uint32_t old, int thread) noexcept;
  void end() noexcept;

  struct alignas(64) Expected {
    std::atomic<const char*> at = nullptr, end = nullptr;
  };

  // Of state_: threads at work beside the leader, whether more may join them, and in the upper half the turn.
  static constexpr std::uint64_t kInside = 0xffff, kClosed = 0x10000;

  int size_;
  std::int64_t count_ = 0;  // these three are read by threads inside, and written when there is none
  Task task_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<bool> ended_ = false;
  alignas(64) std::atomic<std::uint32_t> turn_ = 0;  // of tasks: one more each time
  alignas(64) std::atomic<std::uint64_t> state_ = kClosed;
  alignas(64) std::atomic<std::int64_t> next_ = 0;      // task to be taken
  std::atomic<std::uint64_t> taken_ = 0;                // of no more tasks than threads, a bit each
  alignas(64) std::atomic<std::uint32_t> emptied_ = 0;  // how often the last thread left a closed turn
  Expected expected_[kMost];
  static thread_local Team* current_;
};

template <class Body>
void Team::lead(const Body& body) {
  const int threads = std::min(num_threads(), kMost);
  if (threads <= 1 || current_ || omp_in_parallel()) return body();
  Team team(threads);
  std::exception_ptr failure;
#pragma omp parallel num_threads(threads)
  {
    if (omp_get_thread_num() != 0) {
      team.follow(omp_get_thread_num());
    } else {
      team.size_ = std::min(team.size_, omp_get_num_threads());
      current_ = &team;
      try {
        body();
      } catch (...) {
        failure = std::current_exception();
      }
      current_ = nullptr;
      team.end();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace qkv
