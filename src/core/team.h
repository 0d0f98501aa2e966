// SPDX-License-Identifier: Apache-2.0
// Threads that stay together through many short computations, as in decode: between tasks they spin, so that handing
// out the next tasks takes a fraction of a microsecond, and meanwhile prefetch the memory that they will read next.
// parallel_for (core/parallel.h) uses the team of its thread, if there is one.
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

  // Runs body() on this thread with a team of num_threads() threads, and rethrows its exceptions. Without a team if
  // there is only one thread, inside a task, or inside another team. OpenMP gives body() no further threads.
  template <class Body>
  static void lead(const Body& body);
  // The team that this thread leads, unless it is running a task; else null.
  static Team* current() noexcept { return current_; }

  int size() const noexcept { return size_; }
  // task(context, i) for i = 0 ... count - 1. Thread i begins with task i if there are no more tasks than threads. Late
  // threads are not waited for: the others do all tasks.
  void work(std::int64_t count, Task task, const void* context) noexcept;
  // What thread i will read next: it may prefetch these bytes while it waits, once. Results do not depend on it.
  void prefetch(int thread, const void* at, std::int64_t bytes) noexcept;

  static constexpr int kMax = 64;                                           // threads
  static constexpr std::int64_t kMaxPrefetchBytes = std::int64_t{1} << 18;  // most bytes worth prefetching

 private:
  explicit Team(int size) noexcept : size_(size) {}
  void follow(int thread) noexcept;
  void run_tasks(int thread) noexcept;
  // Waits until value is no longer `old`.
  void wait(const std::atomic<std::uint32_t>& value, std::uint32_t old, int thread) noexcept;
  void end() noexcept;

  struct alignas(64) Expected {
    std::atomic<const char*> at = nullptr, end = nullptr;
  };

  // Fields of state_: number of threads at work other than the leader, whether it is closed to more threads, and the
  // turn in the upper half.
  static constexpr std::uint64_t kInside = 0xffff, kClosed = 0x10000;

  int size_;
  std::int64_t count_ = 0;  // these three are read by threads inside, and written only while there are none
  Task task_ = nullptr;
  const void* context_ = nullptr;
  std::atomic<bool> ended_ = false;
  alignas(64) std::atomic<std::uint32_t> turn_ = 0;  // incremented for each set of tasks
  alignas(64) std::atomic<std::uint64_t> state_ = kClosed;
  alignas(64) std::atomic<std::int64_t> next_ = 0;      // next task to take
  std::atomic<std::uint64_t> taken_ = 0;                // with no more tasks than threads: one bit per task taken
  alignas(64) std::atomic<std::uint32_t> emptied_ = 0;  // incremented when the last thread leaves a closed turn
  Expected expected_[kMax];
  static thread_local Team* current_;
};

template <class Body>
void Team::lead(const Body& body) {
  const int threads = std::min(num_threads(), kMax);
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
