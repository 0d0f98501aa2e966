// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016), forward and backward, each with or without gain
// and bias:
//
//   rmsnorm     xhat = x / sqrt(mean(x^2) + eps)
//   layernorm   xhat = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)
//   y = xhat * gain + bias
//
// f64 is written out here; f32 runs on the row kernels, with y of the type of operands.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/row_kernels.h"
#include "model/gradient_slots.h"
#include "model/sequences.h"
#include "qkv/model.h"

namespace qkv {

inline RowNorm row_norm(Norm kind) { return kind == Norm::layernorm ? RowNorm::layernorm : RowNorm::rmsnorm; }

template <class P>
const P* after(const P* x, std::int64_t count) {  // x + count, and null stays null
  return x ? x + count : nullptr;
}

inline void norm_rows(Norm kind, double eps, std::int64_t rows, std::int64_t d, const double* x, const double* gain,
                      const double* bias, double* y, double* statistics) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const double* xi = x + i * d;  // [d]
    double* yi = y + i * d;        // [d]
    const auto size = static_cast<double>(d);
    double mean = 0, variance = 0;
    for (std::int64_t j = 0; j < d && kind == Norm::layernorm; ++j) mean += xi[j] / size;
    for (std::int64_t j = 0; j < d; ++j) variance += (xi[j] - mean) * (xi[j] - mean) / size;
    const double inverse = 1 / std::sqrt(variance + eps);
    for (std::int64_t j = 0; j < d; ++j)
      yi[j] = (xi[j] - mean) * inverse * (gain ? gain[j] : 1.0) + (bias ? bias[j] : 0.0);
    statistics[2 * i] = mean;
    statistics[2 * i + 1] = inverse;
  }
}

// x [rows, d], gain [d] or null, bias [d] or null -> y [rows, d]; statistics [rows, 2]: mean (0 for rmsnorm) and
// 1 / deviation of each row.
template <class T, class S>
void norm_forward(Norm kind, double eps, std::int64_t rows, std::int64_t d, const T* x, const T* gain, const T* bias,
                  S* y, T* statistics) {
  parallel_ranges(rows, rows_per_task(d), [=](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, double>)
      norm_rows(kind, eps, end - begin, d, x + begin * d, gain, bias, y + begin * d, statistics + 2 * begin);
    else
      row_kernels().of<S>().norm_forward(row_norm(kind), static_cast<float>(eps), end - begin, d, x + begin * d, gain,
                                         bias, y + begin * d, statistics + 2 * begin);
  });
}

// middle = x + delta, then the norm of it. x, delta [rows, d] -> middle [rows, d], y [rows, d], statistics [rows, 2]
template <class T, class S>
void add_norm_forward(Norm kind, double eps, std::int64_t rows, std::int64_t d, const T* x, const T* delta,
                      const T* gain, const T* bias, T* middle, S* y, T* statistics) {
  parallel_ranges(rows, rows_per_task(d), [=](std::int64_t begin, std::int64_t end) {
    const std::int64_t at = begin * d;
    if constexpr (std::is_same_v<T, double>) {
      for (std::int64_t i = at; i < end * d; ++i) middle[i] = x[i] + delta[i];
      norm_rows(kind, eps, end - begin, d, middle + at, gain, bias, y + at, statistics + 2 * begin);
    } else {
      row_kernels().of<S>().residual_norm_forward(row_norm(kind), static_cast<float>(eps), end - begin, d, x + at,
                                                  delta + at, gain, bias, middle + at, y + at, statistics + 2 * begin);
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
    if constexpr (std::is_same_v<T, float>) {
      row_kernels().f32.norm_backward_input(row_norm(kind), end - begin, d, x + begin * d, gain, statistics + 2 * begin,
                                            dy + begin * d, add, dx + begin * d);
    } else {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* xi = x + i * d;    // [d]
        const T* dyi = dy + i * d;  // [d]
        T* dxi = dx + i * d;        // [d]
        const T mean = statistics[2 * i], inverse = statistics[2 * i + 1], size = static_cast<T>(d);
        const auto dxhat = [=](std::int64_t j) { return gain ? dyi[j] * gain[j] : dyi[j]; };
        const auto xhat = [=](std::int64_t j) { return (xi[j] - mean) * inverse; };
        T along = 0, shift = 0;
        for (std::int64_t j = 0; j < d; ++j) along += dxhat(j) * xhat(j) / size;
        for (std::int64_t j = 0; j < d && kind == Norm::layernorm; ++j) shift += dxhat(j) / size;
        for (std::int64_t j = 0; j < d; ++j)
          dxi[j] = (add ? dxi[j] : T{0}) + inverse * (dxhat(j) - shift - xhat(j) * along);
      }
    }
  });
}

// forward: y = xhat * gain + bias        dgain: sum of dy * xhat, dbias: sum of dy, over rows, a leaf a sequence
// x, dy [batch, ctx, d], statistics [batch, ctx, 2] -> dgain, dbias [d], or null in slot 0 where there are none
template <class T>
void norm_backward_parameters(const Sequences& s, std::span<const SumStep> steps, std::int64_t d, const T* x,
                              const T* statistics, const T* dy, const SlotPointers<T>& dgain,
                              const SlotPointers<T>& dbias) {
  const auto sums = [&](std::int64_t sequence, std::int64_t first, std::int64_t count, T* gain_leaf, T* bias_leaf) {
    const std::int64_t row = sequence * s.ctx, rows = s.length(sequence);
    if constexpr (std::is_same_v<T, float>) {
      row_kernels().f32.norm_parameter_sums(rows, d, first, count, x + row * d, statistics + 2 * row, dy + row * d,
                                            gain_leaf, bias_leaf);
    } else {
      for (std::int64_t i = row; i < row + rows; ++i)
        for (std::int64_t j = 0; j < count; ++j) {
          const T dyi = dy[i * d + first + j], xi = x[i * d + first + j];
          if (gain_leaf) gain_leaf[j] += dyi * ((xi - statistics[2 * i]) * statistics[2 * i + 1]);
          if (bias_leaf) bias_leaf[j] += dyi;
        }
    }
  };
  if (dgain[0])
    add_leaves(steps, dgain, d, [&](std::int64_t b, std::int64_t first, std::int64_t count, T* leaf) {
      sums(b, first, count, leaf, nullptr);
    });
  if (dbias[0])
    add_leaves(steps, dbias, d, [&](std::int64_t b, std::int64_t first, std::int64_t count, T* leaf) {
      sums(b, first, count, nullptr, leaf);
    });
}

}  // namespace qkv
