// SPDX-License-Identifier: Apache-2.0
// loss = -ln softmax(logits)[target], in nats, and its gradient.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/elementary.h"
#include "model/sequences.h"

namespace qkv {

// e[j] = exp(x[j] - max(x)), each [n]; gives the sum of e and the largest x. e may be x.
template <class T>
struct Exponentials {
  T sum, largest;
};
template <class T>
Exponentials<T> shifted_exponentials(std::int64_t n, const T* x, T* e) noexcept {
  const T largest = lane_max(n, x);
  for_elements_of_row(n, [=](std::int64_t j) { e[j] = exponential(x[j] - largest); });
  return {lane_sum<T>(n, [=](std::int64_t j) { return e[j]; }), largest};
}

// logits [rows, vocab] are overwritten; targets [rows], -1: ignored -> losses [rows], 0 where ignored.
//   dlogits = scale * (softmax(logits) - onehot(target)), 0 where ignored, left in logits if `gradient`
template <class T>
void cross_entropy(std::int64_t rows, std::int64_t vocab, T* logits, const std::int32_t* targets, bool gradient,
                   T scale, double* losses) {
  parallel_ranges(rows, rows_per_task(vocab), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T* row = logits + i * vocab;  // [vocab]
      const std::int64_t target = targets[i];
      losses[i] = 0;
      if (target < 0) {
        if (gradient) std::fill_n(row, vocab, T{0});
        continue;
      }
      const T chosen = row[target];
      const auto [sum, largest] = shifted_exponentials(vocab, row, row);
      losses[i] = std::log(static_cast<double>(sum)) + (static_cast<double>(largest) - static_cast<double>(chosen));
      if (!gradient) continue;
      const T factor = scale / sum;
      for (std::int64_t j = 0; j < vocab; ++j) row[j] *= factor;
      row[target] -= scale;
    }
  });
}

}  // namespace qkv
