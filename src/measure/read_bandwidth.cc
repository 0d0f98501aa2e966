// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "core/parallel.h"
#include "measure/read_loops.h"
#include "qkv/measure.h"

namespace qkv {
namespace {

std::int64_t checked(std::int64_t bytes) {
  if (bytes < (1 << 20)) {
    throw std::invalid_argument("[measure] expected at least 1048576 bytes to read; found " + std::to_string(bytes));
  }
  return bytes;
}

// Bytes of a part read by each of `threads` threads, in whole blocks.
std::int64_t share_of(std::span<const std::byte> part, std::int64_t threads) {
  return static_cast<std::int64_t>(part.size()) / (threads * measure::kReadBlock) * measure::kReadBlock;
}

// Start of the first whole cache line of a part.
const char* start_of(std::span<const std::byte> part) {
  constexpr std::uintptr_t kLine = 64;
  const auto at = reinterpret_cast<std::uintptr_t>(part.data());
  return reinterpret_cast<const char*>((at + kLine - 1) / kLine * kLine);
}

}  // namespace

ReadMeter::ReadMeter(std::int64_t bytes) : threads_(num_threads()) {
  // Each thread has its own share of whole blocks.
  const std::int64_t blocks = (checked(bytes) + measure::kReadBlock - 1) / measure::kReadBlock;
  const std::int64_t share = (blocks + threads_ - 1) / threads_ * measure::kReadBlock;
  bytes_ = share * threads_;
  memory_ = Tensor({bytes_ / 8}, DType::i64);
  // Pages that were never written may all map to one zero page.
  parallel_for(threads_, [&](std::int64_t t) {
    std::memset(static_cast<char*>(memory_.raw()) + t * share, 1, static_cast<std::size_t>(share));
  });
  parts_ = {{static_cast<const std::byte*>(memory_.raw()), static_cast<std::size_t>(bytes_)}};
  choose_loop();
}

ReadMeter::ReadMeter(std::vector<std::span<const std::byte>> parts)
    : parts_(std::move(parts)), threads_(num_threads()) {
  for (auto& part : parts_) {
    const std::size_t skipped = static_cast<std::size_t>(start_of(part) - reinterpret_cast<const char*>(part.data()));
    part = part.subspan(std::min(skipped, part.size()));
    bytes_ += share_of(part, threads_) * threads_;
  }
  if (bytes_ == 0) {
    throw std::invalid_argument("[measure] expected a part of at least " +
                                std::to_string(threads_ * measure::kReadBlock) + " bytes to read; found none");
  }
  choose_loop();
}

void ReadMeter::choose_loop() {
  double best = 0;
  for (int attempt = 0; attempt < 2; ++attempt) {
    for (const measure::ReadLoop& loop : measure::read_loops()) {
      const auto before = run_;
      run_ = loop.run;
      const double speed = sample();
      if (speed > best) {
        best = speed;
        loop_ = loop.name;
      } else {
        run_ = before;
      }
    }
  }
}

double ReadMeter::sample() const {
  const auto begin = std::chrono::steady_clock::now();
  parallel_for(threads_, [&](std::int64_t t) {
    for (const auto& part : parts_) {
      const std::int64_t share = share_of(part, threads_);
      if (share > 0) run_(start_of(part) + t * share, share);
    }
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return static_cast<double>(bytes_) / std::max(1e-9, seconds) * 1e-9;
}

double measure_read_bandwidth(std::int64_t bytes) {
  const ReadMeter meter(bytes);
  double best = 0;
  for (int i = 0; i < 4; ++i) best = std::max(best, meter.sample());
  return best;
}

}  // namespace qkv
