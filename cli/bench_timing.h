// SPDX-License-Identifier: Apache-2.0
// Timing and medians.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

namespace qkv::cli {

// The median; for an even count the mean of the two middle samples. samples may not be empty.
inline double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t n = samples.size();
  return (samples[(n - 1) / 2] + samples[n / 2]) / 2;
}

template <class Work>
double seconds_of(const Work& work, int times = 1) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / times;
}

// The number of consecutive runs that make a measurement take at least about 2 ms.
template <class Work>
int times_in_a_row(const Work& work) {
  const double once = std::max(1e-7, std::min({seconds_of(work), seconds_of(work), seconds_of(work)}));
  return std::max(1, static_cast<int>(std::ceil(2e-3 / once)));
}

}  // namespace qkv::cli
