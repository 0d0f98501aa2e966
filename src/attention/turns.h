// SPDX-License-Identifier: Apache-2.0
// Sums that several tasks add to in an order that never depends on the number of threads: each waits for its turn.
// Whoever is waited for must have started before the one that waits, and may itself wait for earlier ones alone.
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

  // Until the turn of a sum is `turn`; the first one is 0. Throws std::runtime_error if another task failed.
  void wait(std::int64_t sum, std::int64_t turn) const {
    while (next_[static_cast<std::size_t>(sum)].load(std::memory_order_acquire) != turn) {
      if (failed_) throw std::runtime_error("[attention] another part of the backward pass failed");
      std::this_thread::yield();
    }
  }
  void pass(std::int64_t sum, std::int64_t turn) noexcept {
    next_[static_cast<std::size_t>(sum)].store(turn, std::memory_order_release);
  }
  void fail() noexcept { failed_ = true; }  // nobody may wait any longer

 private:
  std::unique_ptr<std::atomic<std::int64_t>[]> next_;  // [sums]
  std::atomic<bool> failed_ = false;
};

}  // namespace qkv
