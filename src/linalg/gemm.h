// SPDX-License-Identifier: Apache-2.0
// Matrix products. Row-major, C = op(A) op(B) + beta * C with op the identity or the transpose:
//
//   op(A) [m, k]: A is [m, k] with row stride lda, or, if trans_a, [k, m] with row stride lda
//   op(B) [k, n]: B is [k, n] with row stride ldb, or, if trans_b, [n, k] with row stride ldb
//   C     [m, n] with row stride ldc; with beta 0, C is not read
//
// Guarantees, for one build on one machine:
// * the bits do not depend on num_threads(), nor on being called inside a parallel_for task;
// * row i of C has the same bits for any m and any row index, so that a token decoded on its own has the same bits as
//   in a full pass;
// * strides do not change the bits.
// Dense operands (smallest possible lda, ldb and ldc) are fast; others are packed first. Any size may be 0. May be
// called from several threads at once. C must not overlap A or B.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

// Plain loops, for the f64 reference: sums over k in ascending order.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
          const double* b, std::int64_t ldb, double beta, double* c, std::int64_t ldc);

// The implementation used for a dense f32 product of this shape: "brg:..." from oneDNN, or "tiles", our own (sanitizer
// builds, and processors without AVX-512).
std::string gemm_implementation(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace qkv
