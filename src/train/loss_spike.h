// SPDX-License-Identifier: Apache-2.0
// When a loss is out of the ordinary: how many deviations it lies above the mean of the losses before it.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace qkv {

inline constexpr std::size_t kSpikeWindow = 128;  // losses looked back at
inline constexpr std::size_t kSpikeFewest = 32;   // with fewer nothing is said
inline constexpr double kSpikeDeviations = 6;

// Adds a loss to the newest kSpikeWindow ones, oldest first, after it was held against them. Returns its distance
// z = (loss - mean) / deviation if that is above kSpikeDeviations, else 0. Losses that do not vary at all count as
// varying by a millionth of their size.
inline double spike_of(std::vector<double>& recent, double loss) {
  double z = 0;
  if (recent.size() >= kSpikeFewest) {
    const double count = static_cast<double>(recent.size());
    double sum = 0, squares = 0;
    for (const double x : recent) sum += x;
    const double mean = sum / count;
    for (const double x : recent) squares += (x - mean) * (x - mean);
    const double deviation = std::fmax(std::sqrt(squares / (count - 1)), 1e-6 * std::fabs(mean));
    if (deviation > 0) z = (loss - mean) / deviation;
  }
  if (recent.size() == kSpikeWindow) recent.erase(recent.begin());
  recent.push_back(loss);
  return z > kSpikeDeviations ? z : 0;
}

}  // namespace qkv
