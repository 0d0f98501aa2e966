// SPDX-License-Identifier: Apache-2.0
// Matrix products. Row-major, C = op(A) op(B) + beta * C with op the identity or the transpose:
//
//   op(A) [m, k]: A is [m, k] with row stride lda, or, if trans_a, [k, m] with row stride lda
//   op(B) [k, n]: B is [k, n] with row stride ldb, or, if trans_b, [n, k] with row stride ldb
//   C     [m, n] with row stride ldc; beta 0 means that C is not read
//
// Promises, for one build on one machine:
// * the bits do not depend on num_threads(), nor on being called inside a parallel_for task;
// * row i of C has the same bits whatever m is and wherever the row stands, so that a token decoded alone gets the bits
//   it has in a full pass;
// * strides do not change the bits.
// Dense operands (lda, ldb and ldc as small as they can be) are the fast ones; others are packed first. Any size may be
// 0. May be called from several threads at once. C must not overlap A or B.
#pragma once

#include <cstdint>
#include <string>

namespace qkv {

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc);

// Plain loops, for the f64 reference: sums over k run from 0 up.
void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
          const double* b, std::int64_t ldb, double beta, double* c, std::int64_t ldc);

// The implementation that a dense f32 product of this shape runs on: "brg:..." from oneDNN, or "tiles", our own
// (sanitizer builds, and processors without AVX-512).
std::string gemm_implementation(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k);

}  // namespace qkv
