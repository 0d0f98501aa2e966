// SPDX-License-Identifier: Apache-2.0
#include "core/team.h"

namespace qkv {

namespace {

void rest() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// The new value must be visible to all before checking for sleepers, or a thread that goes to sleep now would be
// missed.
void tell(std::atomic<std::uint32_t>& value, std::uint32_t now) noexcept {
  value.exchange(now, std::memory_order_seq_cst);
  value.notify_all();
}

}  // namespace

thread_local Team* Team::current_ = nullptr;

void Team::prefetch(int thread, const void* at, std::int64_t bytes) noexcept {
  Expected& e = expected_[thread];
  e.end.store(nullptr, std::memory_order_relaxed);
  e.at.store(static_cast<const char*>(at), std::memory_order_release);
  e.end.store(static_cast<const char*>(at) + bytes, std::memory_order_release);
}

void Team::wait(const std::atomic<std::uint32_t>& value, std::uint32_t old, int thread) noexcept {
  constexpr int kAwake = 4096;           // rounds, about 100 microseconds, before the thread sleeps in the system
  constexpr int kLine = 64, kLines = 8;  // lines prefetched per round
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
    // The leader may have set another address meanwhile.
    e.at.compare_exchange_strong(at, at + kLines * kLine, std::memory_order_acq_rel);
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void Team::run_tasks(int thread) noexcept {
  if (count_ > size_) {
    for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
         i = next_.fetch_add(1, std::memory_order_relaxed))
      task_(context_, i);
    return;
  }
  for (std::int64_t k = 0; k < count_; ++k) {
    const std::int64_t i = (thread + k) % count_;
    const std::uint64_t bit = std::uint64_t{1} << i;
    if ((taken_.fetch_or(bit, std::memory_order_relaxed) & bit) == 0) task_(context_, i);
  }
}

void Team::work(std::int64_t count, Task task, const void* context) noexcept {
  count_ = count;
  task_ = task;
  context_ = context;
  next_.store(0, std::memory_order_relaxed);
  taken_.store(0, std::memory_order_relaxed);
  const std::uint32_t turn = turn_.load(std::memory_order_relaxed) + 1, emptied = emptied_.load();
  state_.store(std::uint64_t{turn} << 32, std::memory_order_release);
  tell(turn_, turn);
  current_ = nullptr;
  run_tasks(0);
  current_ = this;
  if ((state_.fetch_or(kClosed, std::memory_order_acq_rel) & kInside) != 0) wait(emptied_, emptied, 0);
}

void Team::end() noexcept {
  ended_.store(true);
  tell(turn_, turn_.load(std::memory_order_relaxed) + 1);
}

void Team::follow(int thread) noexcept {
  for (std::uint32_t turn = 0;;) {
    wait(turn_, turn, thread);
    turn = turn_.load(std::memory_order_acquire);
    if (ended_.load()) return;
    std::uint64_t state = state_.load(std::memory_order_relaxed);
    bool inside = false;
    while (!inside && state >> 32 == turn && (state & kClosed) == 0)
      inside = state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel);
    if (!inside) continue;
    run_tasks(thread);
    const std::uint64_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kClosed) != 0 && (before & kInside) == 1)
      tell(emptied_, emptied_.load(std::memory_order_relaxed) + 1);
  }
}

}  // namespace qkv
