// SPDX-License-Identifier: Apache-2.0
#include "qkv/threads.h"

#include <omp.h>
#include <pthread.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace qkv {
namespace {

int wanted_threads = 0;
std::atomic<bool> used_several_threads = false;  // OpenMP then has worker threads waiting
bool threads_lost = false;                       // forked from such a process, without its threads

// OpenMP does not know that its threads are gone, and would wait for them.
void after_fork() { threads_lost = threads_lost || used_several_threads.load(); }
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, after_fork);

}  // namespace

void set_num_threads(int threads) {
  if (threads < 0)
    throw std::invalid_argument("[threads] expected 0 (one per core) or more; found " + std::to_string(threads));
  if (threads > 1 && threads_lost)
    throw std::invalid_argument(
        "[threads] expected 1 in a process forked from one that used several (start such processes without "
        "fork); found " +
        std::to_string(threads));
  wanted_threads = threads;
}

int num_threads() noexcept {
  if (threads_lost) return 1;
  const int threads = wanted_threads > 0 ? wanted_threads : omp_get_num_procs();
  // Called before every computation.
  if (threads > 1 && !used_several_threads.load(std::memory_order_relaxed)) used_several_threads = true;
  return threads;
}

}  // namespace qkv
