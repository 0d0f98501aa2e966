// SPDX-License-Identifier: Apache-2.0
// A weight matrix W [in, out], prepared once for many products:
//
//   forward        y = x W (+ bias)             x [rows, in],  y [rows, out]
//   backward_input dx = dy W^T                  dy [rows, out], dx [rows, in]
//
// The compute dtype (of x, dy and the copy of W) is f32, bf16 or f64; sums are f32, or f64 for f64. The guarantees are
// those of gemm.h: the bits do not depend on the number of threads, and a row has the same bits for any number of rows
// and any row index. W may be a concatenation of several matrices, so that one product serves W_Q, W_K and W_V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/block_types.h"
#include "qkv/tensor.h"

namespace qkv {

// One of the concatenated matrices: [in, columns], row-major.
template <class T>
struct MatrixPart {
  const T* data;
  std::int64_t columns;
};

class Weights {
 public:
  Weights();
  // operand: the compute dtype, DType::f32, bf16 or f64. Columns of W past those passed to prepare() are 0.
  Weights(DType operand, std::int64_t in, std::int64_t out);
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  // Copies W's elements, rounded to the compute dtype; T is double for f64, else float. Without `backward`,
  // backward_input is unavailable.
  template <class T>
  void prepare(std::span<const MatrixPart<T>> parts, bool backward);
  // The same from W^T [columns, in]; columns <= out.
  template <class T>
  void prepare_transposed(const T* w, std::int64_t columns, bool backward);

  // Keeps W in its stored block format (block_matrix.h: q8_0, q4_0 or q4_1, a multiple of 32), for compute dtype f32
  // and forward products only. Throws std::invalid_argument.
  void prepare_blocks(std::span<const BlockColumns> parts);
  bool has_blocks() const noexcept;
  // Column j of the blocks, dequantized -> to [in].
  void column(std::int64_t j, float* to) const;
  // Whether a forward product of this many rows runs on our own kernels, and so on the thread's team (core/team.h).
  bool has_small_batch(std::int64_t rows) const;
  // Prefetches this matrix for the forward product after the current one, in waiting threads of the team. Does not
  // change results.
  void prefetch() const noexcept;
  // Bytes read by a forward product: the copy of W.
  std::size_t bytes() const noexcept;

  // x dense [rows, in] of S, bias [out] or null -> y dense [rows, out] of D. S is the compute dtype; D is S or float.
  template <class S, class T, class D>
  void forward(std::int64_t rows, const S* x, const T* bias, D* y) const;
  // dy dense [rows, out] of S -> dx dense [rows, in] of D
  template <class S, class D>
  void backward_input(std::int64_t rows, const S* dy, D* dx) const;

  std::int64_t in() const noexcept;
  std::int64_t out() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether this machine has instructions for bf16 products; otherwise they are correct but slow.
bool has_fast_bf16_products();

// dW [m, n] = A^T B, or dW += A^T B if `add`, on the calling thread only: A [k, m] and B [k, n] with row strides lda
// and ldb, of float, bf16 or double; c [m, n] with row stride ldc, of float (double for double). The bits depend only
// on the sizes and the elements. k may be 0.
template <class S, class T>
void outer_product(std::int64_t m, std::int64_t n, std::int64_t k, const S* a, std::int64_t lda, const S* b,
                   std::int64_t ldb, bool add, T* c, std::int64_t ldc);

}  // namespace qkv
