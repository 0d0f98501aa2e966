// SPDX-License-Identifier: Apache-2.0
#include "core/team.h"

namespace qkv {

namespace {

void rest() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The new value is seen by all before it is asked whether anybody sleeps, or one who falls asleep now would be missed.
void tell(std::atomic<std::uint32_t>& value, std::uint32_t now) noexcept {
  value.exchange(now, std::memory_order_seq_cst);
  value.notify_all();
}

}  // namespace

thread_local Team* Team::current_ = nullptr;

void Team::expect(int thread, const void* at, std::int64_t bytes) noexcept {
  Expected& e = expected_[thread];
  e.end.store(nullptr, std::memory_order_relaxed);
  e.at.store(static_cast<const char*>(at), std::memory_order_release);
  e.end.store(static_cast<const char*>(at) + bytes, std::memory_order_release);
}

void Team::wait(const std::atomic<std::uint32_t>& value, std::uint32_t old, int thread) noexcept {
  constexpr int kAwake = 4096;  // rounds, some 100 microseconds, before the system is asked to wake this thread
  constexpr int kLine = 64, kLines = 8;  // asked for a round
  Expected& e = expected_[thread];
  for (int round = 0; round < kAwake; ++round) {
    if (value.load(std::memory_order_acquire) != old) return;
    const char* end = e.end.load(std::memory_order_acquire);
    const char* at = e.at.load(std::memory_order_acquire);
    if (!end || at >= end) {
      rest();
      continue;
    }
    for (int line = 0; line < kLines; ++line) __builtin_prefetch(at + line * kLine, 0, 2);
    // The leader may have named another place meanwhile.
    e.at.compare_exchange_strong(at, at + kLines * kLine, std::memory_order_acq_rel);
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void Team::run_tasks(int thread) noexcept {
  if (count_ <= size_) {
    if (thread < count_) task_(context_, thread);
    return;
  }
  for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
       i = next_.fetch_add(1, std::memory_order_relaxed))
    task_(context_, i);
}

void Team::work(std::int64_t count, Task task, const void* context) noexcept {
  count_ = count;
  task_ = task;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(size_ - 1), std::memory_order_relaxed);
  const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
  tell(turn_, turn + 1);
  current_ = nullptr;
  run_tasks(0);
  current_ = this;
  if (size_ > 1) wait(done_, turn, 0);
}

void Team::end() noexcept {
  task_ = nullptr;
  tell(turn_, turn_.load(std::memory_order_relaxed) + 1);
}

void Team::follow(int thread) noexcept {
  for (std::uint32_t turn = 0;; ++turn) {
    wait(turn_, turn, thread);
    if (!task_) return;
    run_tasks(thread);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
    tell(done_, turn + 1);
  }
}

}  // namespace qkv
