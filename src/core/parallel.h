// SPDX-License-Identifier: Apache-2.0
// The only threading of qkv: independent tasks, handed out in order to whichever thread is free. A task may not
// depend on which thread runs it or on what runs beside it, so results never depend on the number of threads.
#pragma once

#include <cstdint>
#include <exception>
#include <mutex>

#include "qkv/threads.h"

namespace qkv {

// Runs task(i) for i = 0 ... count - 1 on num_threads() threads; the first exception is rethrown when all are done.
// Called inside a task it runs the tasks one after the other.
template <class Task>
void parallel_for(std::int64_t count, const Task& task) {
  const int threads = static_cast<int>(std::int64_t{num_threads()} < count ? std::int64_t{num_threads()} : count);
  if (threads <= 1) {
    for (std::int64_t i = 0; i < count; ++i) task(i);
    return;
  }
  std::exception_ptr failure;
  std::mutex mutex;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
  for (std::int64_t i = 0; i < count; ++i) {
    try {
      task(i);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
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
