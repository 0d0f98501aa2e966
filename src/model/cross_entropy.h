// SPDX-License-Identifier: Apache-2.0
// loss = -ln softmax(logits)[target], in nats, and its gradient.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/row_kernels.h"
#include "model/sequences.h"

namespace qkv {

// One row in f64, as written; see RowKernels::cross_entropy for the arguments.
inline double cross_entropy_row(std::int64_t vocab, std::int64_t padded, double* logits, std::int64_t target,
                                double scale, double* dlogits) {
  if (target < 0) {
    if (dlogits) std::fill_n(dlogits, padded, 0.0);
    return 0;
  }
  const double largest = *std::max_element(logits, logits + vocab), chosen = logits[target];
  double sum = 0;
  for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(logits[j] - largest);
  if (dlogits) {
    for (std::int64_t j = 0; j < vocab; ++j)
      dlogits[j] = scale * (std::exp(logits[j] - largest) / sum - (j == target ? 1.0 : 0.0));
    std::fill_n(dlogits + vocab, padded - vocab, 0.0);
  }
  return std::log(sum) + (largest - chosen);
}

// logits [rows, padded], of which the first vocab count, are overwritten; targets [rows], -1: ignored -> losses [rows],
// 0 where ignored.
//   dlogits = scale * (softmax(logits) - onehot(target)), 0 where ignored and in the lanes from vocab on
// dlogits [rows, padded] or null; may be logits if the types are the same.
template <class T, class S>
void cross_entropy(std::int64_t rows, std::int64_t vocab, std::int64_t padded, T* logits, const std::int32_t* targets,
                   T scale, S* dlogits, double* losses) {
  parallel_ranges(rows, rows_per_task(vocab), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      T* row = logits + i * padded;                          // [padded]
      S* slopes = dlogits ? dlogits + i * padded : nullptr;  // [padded]
      if constexpr (std::is_same_v<T, double>)
        losses[i] = cross_entropy_row(vocab, padded, row, targets[i], scale, slopes);
      else
        losses[i] = row_kernels().of<S>().cross_entropy(vocab, padded, row, targets[i], scale, slopes);
    }
  });
}

}  // namespace qkv
