// SPDX-License-Identifier: Apache-2.0
// Sums that several tasks add to in an order independent of the number of threads: each task waits for its turn. A task
// must start after the tasks it waits for, which may themselves wait only for earlier ones.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <thread>

namespace qkv {

class Turns {
 public:
  explicit Turns(std::int64_t sums)
      : next_(std::make_unique<std::atomic<std::int64_t>[]>(static_cast<std::size_t>(sums))) {
    for (std::int64_t i = 0; i < sums; ++i) next_[static_cast<std::size_t>(i)] = 0;
  }

  // Waits until the turn of a sum is `turn`; the first turn is 0. Throws std::runtime_error if another task failed.
  void wait(std::int64_t sum, std::int64_t turn) const {
    while (next_[static_cast<std::size_t>(sum)].load(std::memory_order_acquire) != turn) {
      if (failed_) throw std::runtime_error("[attention] another part of the backward pass failed");
      std::this_thread::yield();
    }
  }
  void pass(std::int64_t sum, std::int64_t turn) noexcept {
    next_[static_cast<std::size_t>(sum)].store(turn, std::memory_order_release);
  }
  void fail() noexcept { failed_ = true; }  // releases all waiting tasks

 private:
  std::unique_ptr<std::atomic<std::int64_t>[]> next_;  // [sums]
  std::atomic<bool> failed_ = false;
};

}  // namespace qkv
