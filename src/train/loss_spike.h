// SPDX-License-Identifier: Apache-2.0
// Detects loss spikes: how many standard deviations a loss is above the mean of the losses before it.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace qkv {

inline constexpr std::size_t kSpikeWindow = 128;  // number of losses compared with
inline constexpr std::size_t kSpikeFewest = 32;   // with fewer, no spike is reported
inline constexpr double kSpikeDeviations = 6;

// Compares a loss with the kSpikeWindow newest ones, oldest first, then adds it to them. Returns its distance z = (loss
// - mean) / deviation if that is above kSpikeDeviations, else 0. The deviation is at least a millionth of the mean's
// size.
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
