// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/parallel.h"
#include "measure/peak_loops.h"
#include "qkv/measure.h"

namespace qkv {
namespace {

template <class Work>
double seconds(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::max(1e-9, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
}

// Four chains, so that no addition waits for the one before it.
std::uint64_t sum_of(const std::uint64_t* words, std::int64_t count) noexcept {
  std::uint64_t sums[4] = {};
  for (std::int64_t i = 0; i + 4 <= count; i += 4) {
    for (int j = 0; j < 4; ++j) sums[j] += words[i + j];
  }
  return sums[0] + sums[1] + sums[2] + sums[3];
}

}  // namespace

Peak measure_peak() {
  const measure::PeakLoop loop = measure::peak_loops().front();
  const std::int64_t threads = num_threads();
  const auto run = [&](std::int64_t rounds) {
    return seconds([&] { parallel_for(threads, [&](std::int64_t) { loop.run(rounds); }); });
  };
  // Long enough that starting the threads does not count: about 20 ms.
  std::int64_t rounds = 1 << 14;
  while (std::min(run(rounds), run(rounds)) < 0.01 && rounds < (std::int64_t{1} << 32)) rounds *= 2;
  rounds *= 2;
  double best = run(rounds);
  for (int i = 0; i < 6; ++i) best = std::min(best, run(rounds));
  return {static_cast<double>(rounds * loop.flops_per_round * threads) / best * 1e-9, loop.instructions};
}

double measure_read_bandwidth(std::int64_t bytes) {
  if (bytes < (1 << 20)) {
    throw std::invalid_argument("[measure] expected at least 1048576 bytes to read; found " + std::to_string(bytes));
  }
  const std::int64_t words = bytes / 8;
  const std::int64_t threads = num_threads();
  const std::int64_t share = (words + threads - 1) / threads;
  std::vector<std::uint64_t> memory(static_cast<std::size_t>(words), 1);
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(threads));
  double best = 1e9;
  for (int i = 0; i < 4; ++i) {
    best = std::min(best, seconds([&] {
                      parallel_for(threads, [&](std::int64_t t) {
                        const std::int64_t begin = std::min(words, t * share);
                        const std::int64_t count = std::min(words - begin, share);
                        sums[static_cast<std::size_t>(t)] = sum_of(memory.data() + begin, count);
                      });
                    }));
    memory[static_cast<std::size_t>(i)] = sums[0];  // the sums are needed
  }
  return static_cast<double>(words * 8) / best * 1e-9;
}

}  // namespace qkv
