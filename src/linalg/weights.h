// SPDX-License-Identifier: Apache-2.0
// A weight matrix W [in, out] made ready once for many products:
//
//   forward        y = x W (+ bias)             x [rows, in],  y [rows, out]
//   backward_input dx = dy W^T                  dy [rows, out], dx [rows, in]
//
// Operands (x, dy and the copy of W) are f32, bf16 or f64; sums are f32, or f64 for f64. The promises are those of
// gemm.h: the bits do not depend on the number of threads, and a row has the same bits whatever the number of rows and
// wherever it stands. W may be made of several matrices side by side, so that one product serves W_Q, W_K and W_V.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/block_types.h"
#include "qkv/tensor.h"

namespace qkv {

// One of the matrices side by side: [in, columns], row-major.
template <class T>
struct MatrixPart {
  const T* data;
  std::int64_t columns;
};

class Weights {
 public:
  Weights();
  // operand: DType::f32, bf16 or f64. Columns of W past those that prepare() gives are 0.
  Weights(DType operand, std::int64_t in, std::int64_t out);
  ~Weights();
  Weights(Weights&&) noexcept;
  Weights& operator=(Weights&&) noexcept;

  // Takes W's elements, rounded to the operand's type; T is double for f64, else float. Without `backward` there will
  // be no backward_input.
  template <class T>
  void prepare(std::span<const MatrixPart<T>> parts, bool backward);
  // The same from W^T [columns, in]; columns <= out.
  template <class T>
  void prepare_transposed(const T* w, std::int64_t columns, bool backward);

  // Keeps W in the blocks that it is stored in (block_matrix.h: q8_0, q4_0 or q4_1, in a multiple of 32), for f32
  // operands and forward products alone. Throws std::invalid_argument.
  void prepare_blocks(std::span<const BlockColumns> parts);
  bool has_blocks() const noexcept;
  // Column j of blocks, as numbers -> to [in].
  void column(std::int64_t j, float* to) const;
  // Whether a forward product of so many rows runs on our own kernels, and so on the thread's team (core/team.h).
  bool has_small_batch(std::int64_t rows) const;
  // The next forward product but the one at hand: threads of the team that wait ask memory for it. Changes no result.
  void prefetch() const noexcept;
  // Bytes of the copy of W that a forward product reads.
  std::size_t bytes() const noexcept;

  // x dense [rows, in] of S, bias [out] or null -> y dense [rows, out] of D. S is the operand's type; D is S or float.
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

// Whether this machine has instructions for products of bf16 operands; elsewhere they are right but slow.
bool has_fast_bf16_products();

// dW [m, n] = A^T B, or dW += A^T B if `add`, on the calling thread alone: A [k, m] and B [k, n] with row strides lda
// and ldb, of float, bf16 or double; c [m, n] with row stride ldc, of float (double for double). The bits depend on
// nothing but the sizes and the elements. k may be 0.
template <class S, class T>
void outer_product(std::int64_t m, std::int64_t n, std::int64_t k, const S* a, std::int64_t lda, const S* b,
                   std::int64_t ldb, bool add, T* c, std::int64_t ldc);

}  // namespace qkv
