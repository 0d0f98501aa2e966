// SPDX-License-Identifier: Apache-2.0
// y = x W + b, forward and backward.
#pragma once

#include <cstdint>

#include "linalg/gemm.h"
#include "model/elementary.h"
#include "model/sequences.h"

namespace qkv {

// x [rows, in], w [in, out], b [out] or null -> y [rows, out]
template <class T>
void linear_forward(std::int64_t rows, std::int64_t in, std::int64_t out, const T* x, const T* w, const T* b, T* y) {
  gemm(false, false, rows, out, in, x, in, w, out, T{0}, y, out);
  if (!b) return;
  parallel_ranges(rows, rows_per_task(out), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t j = 0; j < out; ++j) y[i * out + j] += b[j];
  });
}

// forward: y = x W + b        dx = dy W^T (+ beta * dx)
// dy [rows, out], w [in, out] -> dx [rows, in]
template <class T>
void linear_backward_input(std::int64_t rows, std::int64_t in, std::int64_t out, const T* dy, const T* w, T beta,
                           T* dx) {
  gemm(false, true, rows, in, out, dy, out, w, out, beta, dx, in);
}

// forward: y = x W + b        dW += x^T dy, db += sum of dy's rows, a leaf a sequence
// x [batch, ctx, in], dy [batch, ctx, out] -> dw [in, out], db [out] or null
template <class T>
void linear_backward_weights(const Sequences& s, std::int64_t in, std::int64_t out, const T* x, const T* dy, T* dw,
                             T* db) {
  for (std::int64_t b = 0; b < s.batch; ++b)
    gemm(true, false, in, out, s.length(b), x + b * s.ctx * in, in, dy + b * s.ctx * out, out, T{1}, dw, out);
  if (!db) return;
  add_row_sums(
      s, out,
      [=](std::int64_t row, std::int64_t first, std::int64_t count, T* leaf) {
        const T* d = dy + row * out + first;  // [count]
        for (std::int64_t j = 0; j < count; ++j) leaf[j] += d[j];
      },
      db);
}

// out = a + c, each [size]; out may be a or c.
template <class T>
void add(std::int64_t size, const T* a, const T* c, T* out) {
  for_elements(size, [=](std::int64_t i) { out[i] = a[i] + c[i]; });
}

}  // namespace qkv
