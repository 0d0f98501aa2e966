// SPDX-License-Identifier: Apache-2.0
// The product as plain loops: each element of C is one sum over k in ascending order, whatever the tiling and threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace qkv {

// dst [rows, cols], dense = src [rows, cols] with row stride ld, or the transpose of src [cols, rows].
template <class T>
void pack_dense(bool transpose, std::int64_t rows, std::int64_t cols, const T* src, std::int64_t ld, T* dst) {
  parallel_ranges(rows, std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(cols, 1)),
                  [=](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i)
                      for (std::int64_t j = 0; j < cols; ++j)
                        dst[i * cols + j] = transpose ? src[j * ld + i] : src[i * ld + j];
                  });
}

template <class T>
void scale_matrix(std::int64_t m, std::int64_t n, T beta, T* c, std::int64_t ldc) {
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T{0} ? T{0} : beta * c[i * ldc + j];
}

template <class T>
void plain_gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
                std::int64_t lda, const T* b, std::int64_t ldb, T beta, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;  // a and b are not read
  constexpr std::int64_t kRows = 4, kCols = 128;
  std::vector<T> transposed;  // [k, n]
  if (trans_b) {
    transposed.resize(static_cast<std::size_t>(k * n));
    pack_dense(true, k, n, b, ldb, transposed.data());
    b = transposed.data();
    ldb = n;
  }
  const std::int64_t row_tiles = (m + kRows - 1) / kRows;
  parallel_ranges(row_tiles, std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, kRows * n * k)),
                  [=](std::int64_t first, std::int64_t last) {
                    for (std::int64_t tile = first; tile < last; ++tile) {
                      const std::int64_t i0 = tile * kRows, rows = std::min(kRows, m - i0);
                      for (std::int64_t j0 = 0; j0 < n; j0 += kCols) {
                        const std::int64_t cols = std::min(kCols, n - j0);
                        T sums[kRows][kCols] = {};  // [rows, cols]
                        for (std::int64_t p = 0; p < k; ++p) {
                          const T* b_row = b + p * ldb + j0;  // [cols]
                          for (std::int64_t i = 0; i < rows; ++i) {
                            const T x = trans_a ? a[p * lda + i0 + i] : a[(i0 + i) * lda + p];
                            for (std::int64_t j = 0; j < cols; ++j) sums[i][j] += x * b_row[j];
                          }
                        }
                        for (std::int64_t i = 0; i < rows; ++i) {
                          T* c_row = c + (i0 + i) * ldc + j0;  // [cols]
                          for (std::int64_t j = 0; j < cols; ++j)
                            c_row[j] = beta == T{0} ? sums[i][j] : beta * c_row[j] + sums[i][j];
                        }
                      }
                    }
                  });
}

}  // namespace qkv
