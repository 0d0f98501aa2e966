// SPDX-License-Identifier: Apache-2.0
// Softmax of rows of logits.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace qkv {

// exp(logit - lse), summed in order in f64; logits [size] -> [size]. A NaN makes all results NaN.
inline std::vector<double> softmax_row(const float* logits, std::int64_t size) {
  std::vector<double> probs(static_cast<std::size_t>(size));  // [size]
  double largest = -INFINITY, sum = 0;
  for (std::int64_t i = 0; i < size; ++i) largest = logits[i] > largest ? logits[i] : largest;
  for (std::int64_t i = 0; i < size; ++i)
    sum += probs[static_cast<std::size_t>(i)] = std::exp(static_cast<double>(logits[i]) - largest);
  for (double& p : probs) p /= sum;
  return probs;
}

}  // namespace qkv
