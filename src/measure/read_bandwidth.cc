// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>

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

}  // namespace

ReadMeter::ReadMeter(std::int64_t bytes) : threads_(num_threads()) {
  // Every thread has a share of whole blocks of its own.
  const std::int64_t blocks = (checked(bytes) + measure::kReadBlock - 1) / measure::kReadBlock;
  share_ = (blocks + threads_ - 1) / threads_ * measure::kReadBlock;
  bytes_ = share_ * threads_;
  memory_ = Tensor({bytes_ / 8}, DType::i64);
  // Pages that nobody wrote may all be the one page of zeros.
  parallel_for(threads_, [&](std::int64_t t) {
    std::memset(static_cast<char*>(memory_.raw()) + t * share_, 1, static_cast<std::size_t>(share_));
  });
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
  parallel_for(threads_, [&](std::int64_t t) { run_(static_cast<const char*>(memory_.raw()) + t * share_, share_); });
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
