// SPDX-License-Identifier: Apache-2.0
// The equations of attention for one head, one function per step, every matrix materialized. T is float or double.
// Forward, backward and the step-by-step view consist only of these functions. Vaswani et al. (2017), section 3.2.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"

namespace qkv::reference {

template <class T>
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<T> values;  // [rows, cols]

  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(static_cast<std::size_t>(element_count({r, c}))) {}
  T* row(std::int64_t i) noexcept { return values.data() + i * cols; }
  const T* row(std::int64_t i) const noexcept { return values.data() + i * cols; }
};

// Head h of sequence b of a view [batch, heads, rows, cols], widened to T.
template <class T>
Matrix<T> gather(const ConstView& view, std::int64_t b, std::int64_t h);
// The inverse: writes to the view, rounded to its type. An empty view is skipped.
template <class T>
void scatter(const Matrix<T>& matrix, const View& view, std::int64_t b, std::int64_t h) noexcept;

// q . k                                                         q [q_len, d_k], k [kv_len, d_k] -> [q_len, kv_len]
template <class T>
Matrix<T> products(const AttentionProblem& p, const Matrix<T>& q, const Matrix<T>& k);

// (q . k) * scale                                                                  products, scores [q_len, kv_len]
template <class T>
Matrix<T> scaled_scores(const AttentionProblem& p, Matrix<T> products);

// softcap * tanh(scores / softcap), or the scores themselves without a softcap                     [q_len, kv_len]
template <class T>
Matrix<T> softcapped_scores(const AttentionProblem& p, const Matrix<T>& scores);

// softcapped + mask - slope * |j - position|, and -inf where masked                                 [q_len, kv_len]
template <class T>
Matrix<T> masked_scores(const AttentionProblem& p, std::int64_t b, std::int64_t h, const Matrix<T>& softcapped);

// Whether a masked score is not -inf, so that the key is attended to; true for NaN.
template <class T>
bool is_attended(T masked) noexcept;

// Softmax of each row over the unmasked keys and the sink; a fully masked row has probs 0 and lse -inf.
template <class T>
struct Softmax {
  Matrix<T> probs;            // [q_len, kv_len]
  std::vector<T> lse;         // [q_len]
  std::vector<T> sink_probs;  // [q_len]; 0 without a sink
};
template <class T>
Softmax<T> softmax_rows(const AttentionProblem& p, std::int64_t h, const Matrix<T>& masked);

// x / (1 - p) where dropout keeps the pair, x * 0 where it does not; x without dropout                [q_len, kv_len]
template <class T>
Matrix<T> dropped(const AttentionProblem& p, std::int64_t b, std::int64_t h, const Matrix<T>& x);

// probs . v over the unmasked keys                                                  v [kv_len, d_v] -> [q_len, d_v]
template <class T>
Matrix<T> weighted_values(const Matrix<T>& masked, const Matrix<T>& probs, const Matrix<T>& v);

}  // namespace qkv::reference
