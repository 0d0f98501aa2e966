// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/parallel.h"
#include "measure/peak_loops.h"
#include "qkv/measure.h"

namespace qkv {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

// Clock rate in GHz: dependent additions take one cycle each.
double measure_ghz() {
  constexpr std::int64_t kRounds = 1 << 16, kAdditions = 16;
  double best = 1e9;
  for (int attempt = 0; attempt < 24; ++attempt) {
    std::uint64_t sum = 0, step = 1;
    asm volatile("" : "+r"(step));  // unknown to the compiler
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < kRounds; ++i) {
#if defined(__clang__)
#pragma unroll
#else
#pragma GCC unroll 16
#endif
      for (int j = 0; j < kAdditions; ++j) {
        sum += step;
        asm volatile("" : "+r"(sum));
      }
    }
    best = std::min(best, seconds_since(begin));
  }
  return static_cast<double>(kRounds * kAdditions) / best * 1e-9;
}

// The shortest of several runs of about 1 ms on this thread, in seconds per round.
double seconds_per_round(const measure::PeakLoop& loop) {
  std::int64_t rounds = 1 << 10;
  const auto run = [&](int times) {
    double best = 1e9;
    for (int i = 0; i < times; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      loop.run(rounds);
      best = std::min(best, seconds_since(begin));
    }
    return best;
  };
  while (run(3) < 1e-3) rounds *= 2;
  return run(16) / static_cast<double>(rounds);
}

}  // namespace

PeakMeter::PeakMeter(DType dtype, std::string_view kernels) : threads_(num_threads()) {
  const measure::PeakLoop loop = measure::peak_loop(dtype, kernels);
  loop_ = loop.run;
  flops_per_round_ = loop.flops_per_round;
  instructions_ = loop.kernels;
  // Long enough for the cost of starting threads to be negligible; calibrated on one thread, so that other load on the
  // machine cannot make it too short.
  rounds_ = static_cast<std::int64_t>(std::ceil(1e-2 / seconds_per_round(loop)));
}

double PeakMeter::sample() const {
  const auto begin = std::chrono::steady_clock::now();
  parallel_for(threads_, [&](std::int64_t) { loop_(rounds_); });
  return static_cast<double>(rounds_ * flops_per_round_ * threads_) / seconds_since(begin) * 1e-9;
}

Peak measure_peak(DType dtype, std::string_view kernels) {
  const PeakMeter meter(dtype, kernels);
  double best = 0;
  for (int i = 0; i < 8; ++i) best = std::max(best, meter.sample());
  return {best, meter.instructions()};
}

TheoreticalPeak theoretical_peak(DType dtype, std::string_view kernels) {
  const measure::PeakLoop loop = measure::peak_loop(dtype, kernels);
  TheoreticalPeak peak;
  peak.ghz = measure_ghz();
  const double cycles = seconds_per_round(loop) * peak.ghz * 1e9;
  const double per_cycle = std::max(1.0, std::round(static_cast<double>(loop.multiply_adds_per_round) / cycles));
  peak.operations_per_cycle =
      static_cast<int>(per_cycle) * static_cast<int>(loop.flops_per_round / loop.multiply_adds_per_round);
  peak.gflops = peak.ghz * peak.operations_per_cycle * num_threads();
  return peak;
}

}  // namespace qkv
