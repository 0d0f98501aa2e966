// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016), forward and backward, each with or without gain
// and bias:
//
//   rmsnorm     xhat = x / sqrt(mean(x^2) + eps)
//   layernorm   xhat = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)
//   y = xhat * gain + bias
#pragma once

#include <cmath>
#include <cstdint>

#include "model/elementary.h"
#include "model/sequences.h"
#include "qkv/model.h"

namespace qkv {

// x [rows, d], gain [d] or null, bias [d] or null -> y [rows, d]; statistics [rows, 2]: mean (0 for rmsnorm) and
// 1 / deviation of each row.
template <class T>
void norm_forward(Norm kind, double eps, std::int64_t rows, std::int64_t d, const T* x, const T* gain, const T* bias,
                  T* y, T* statistics) {
  parallel_ranges(rows, rows_per_task(d), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* xi = x + i * d;  // [d]
      T* yi = y + i * d;        // [d]
      const T size = static_cast<T>(d);
      const T mean = kind == Norm::layernorm ? lane_sum<T>(d, [=](std::int64_t j) { return xi[j]; }) / size : T{0};
      const T variance = lane_sum<T>(d, [=](std::int64_t j) { return (xi[j] - mean) * (xi[j] - mean); }) / size;
      const T inverse = T{1} / std::sqrt(variance + static_cast<T>(eps));
      for (std::int64_t j = 0; j < d; ++j) yi[j] = (xi[j] - mean) * inverse;
      if (gain)
        for (std::int64_t j = 0; j < d; ++j) yi[j] *= gain[j];
      if (bias)
        for (std::int64_t j = 0; j < d; ++j) yi[j] += bias[j];
      statistics[2 * i] = mean;
      statistics[2 * i + 1] = inverse;
    }
  });
}

// forward: y = xhat * gain + bias, xhat = (x - mean) * inverse
//   dxhat = dy * gain
//   rmsnorm     dx (+)= inverse * (dxhat - xhat * mean(dxhat * xhat))
//   layernorm   dx (+)= inverse * (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat))
// x, dy [rows, d], statistics [rows, 2] -> dx [rows, d], added to if `add`; dx may be dy.
template <class T>
void norm_backward_input(Norm kind, std::int64_t rows, std::int64_t d, const T* x, const T* gain, const T* statistics,
                         const T* dy, bool add, T* dx) {
  parallel_ranges(rows, rows_per_task(d), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* xi = x + i * d;    // [d]
      const T* dyi = dy + i * d;  // [d]
      T* dxi = dx + i * d;        // [d]
      const T mean = statistics[2 * i], inverse = statistics[2 * i + 1], size = static_cast<T>(d);
      const auto dxhat = [=](std::int64_t j) { return gain ? dyi[j] * gain[j] : dyi[j]; };
      const auto xhat = [=](std::int64_t j) { return (xi[j] - mean) * inverse; };
      const T along = lane_sum<T>(d, [=](std::int64_t j) { return dxhat(j) * xhat(j); }) / size;
      const T shift = kind == Norm::layernorm ? lane_sum<T>(d, dxhat) / size : T{0};
      if (add)
        for_elements_of_row(d, [=](std::int64_t j) { dxi[j] += inverse * (dxhat(j) - shift - xhat(j) * along); });
      else
        for_elements_of_row(d, [=](std::int64_t j) { dxi[j] = inverse * (dxhat(j) - shift - xhat(j) * along); });
    }
  });
}

// forward: y = xhat * gain + bias        dgain += sum of dy * xhat, dbias += sum of dy, over rows, a leaf a sequence
// x, dy [batch, ctx, d], statistics [batch, ctx, 2] -> dgain [d] or null, dbias [d] or null
template <class T>
void norm_backward_parameters(const Sequences& s, std::int64_t d, const T* x, const T* statistics, const T* dy,
                              T* dgain, T* dbias) {
  if (dgain)
    add_row_sums(
        s, d,
        [=](std::int64_t row, std::int64_t first, std::int64_t count, T* leaf) {
          const T* xi = x + row * d + first;    // [count]
          const T* dyi = dy + row * d + first;  // [count]
          const T mean = statistics[2 * row], inverse = statistics[2 * row + 1];
          for (std::int64_t j = 0; j < count; ++j) leaf[j] += dyi[j] * ((xi[j] - mean) * inverse);
        },
        dgain);
  if (dbias)
    add_row_sums(
        s, d,
        [=](std::int64_t row, std::int64_t first, std::int64_t count, T* leaf) {
          const T* dyi = dy + row * d + first;  // [count]
          for (std::int64_t j = 0; j < count; ++j) leaf[j] += dyi[j];
        },
        dbias);
}

}  // namespace qkv
