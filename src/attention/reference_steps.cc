// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/elements.h"
#include "attention/mask.h"
#include "attention/reference.h"

namespace qkv::reference {
namespace {

template <class T>
constexpr T kMinusInfinity = -std::numeric_limits<T>::infinity();

// x . y                                                                                                    x, y [d]
template <class T>
T dot(const T* x, const T* y, std::int64_t d) noexcept {
  T sum = 0;
  for (std::int64_t c = 0; c < d; ++c) sum += x[c] * y[c];
  return sum;
}

}  // namespace

template <class T>
Matrix<T> gather(const ConstView& view, std::int64_t b, std::int64_t h) {
  const Dims& s = view.strides;
  Matrix<T> matrix(view.shape[2], view.shape[3]);
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    const std::int64_t offset = b * s[0] + h * s[1] + i * s[2];
    for (std::int64_t c = 0; c < matrix.cols; ++c) matrix.row(i)[c] = load_element<T>(view, offset + c * s[3]);
  }
  return matrix;
}

template <class T>
void scatter(const Matrix<T>& matrix, const View& view, std::int64_t b, std::int64_t h) noexcept {
  if (!view) return;
  const Dims& s = view.strides;
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    const std::int64_t offset = b * s[0] + h * s[1] + i * s[2];
    for (std::int64_t c = 0; c < matrix.cols; ++c) store_element(view, offset + c * s[3], matrix.row(i)[c]);
  }
}

template <class T>
Matrix<T> products(const AttentionProblem& p, const Matrix<T>& q, const Matrix<T>& k) {
  Matrix<T> products(p.q_len, p.kv_len);
  for (std::int64_t i = 0; i < p.q_len; ++i) {
    for (std::int64_t j = 0; j < p.kv_len; ++j) products.row(i)[j] = dot(q.row(i), k.row(j), p.d_k);
  }
  return products;
}

template <class T>
Matrix<T> scaled_scores(const AttentionProblem& p, Matrix<T> products) {
  const T scale = static_cast<T>(p.scale);
  for (T& x : products.values) x *= scale;
  return products;
}

template <class T>
Matrix<T> softcapped_scores(const AttentionProblem& p, const Matrix<T>& scores) {
  Matrix<T> softcapped = scores;
  if (p.softcap == 0) return softcapped;
  const T softcap = static_cast<T>(p.softcap);
  for (T& x : softcapped.values) x = softcap * std::tanh(x / softcap);
  return softcapped;
}

template <class T>
bool is_attended(T masked) noexcept {
  return masked != kMinusInfinity<T>;
}

template <class T>
Matrix<T> masked_scores(const AttentionProblem& p, std::int64_t b, std::int64_t h, const Matrix<T>& softcapped) {
  Matrix<T> masked(p.q_len, p.kv_len);
  std::fill(masked.values.begin(), masked.values.end(), kMinusInfinity<T>);
  for (std::int64_t i = 0; i < p.q_len; ++i) {
    const IndexRange keys = attendable_keys(p, b, i);
    for (std::int64_t j = keys.begin; j < keys.end; ++j) {
      const T bias = mask_bias<T>(p, b, h, i, j);
      // Not "score + -inf": a masked score can be NaN.
      if (is_attended(bias)) masked.row(i)[j] = softcapped.row(i)[j] + bias + alibi_bias<T>(p, b, h, i, j);
    }
  }
  return masked;
}

template <class T>
Softmax<T> softmax_rows(const AttentionProblem& p, std::int64_t h, const Matrix<T>& masked) {
  const auto rows = static_cast<std::size_t>(p.q_len);
  Softmax<T> softmax{Matrix<T>(p.q_len, p.kv_len), std::vector<T>(rows, kMinusInfinity<T>), std::vector<T>(rows, T{0})};
  const T sink = p.sinks.empty() ? kMinusInfinity<T> : static_cast<T>(p.sinks[static_cast<std::size_t>(h)]);
  for (std::int64_t i = 0; i < p.q_len; ++i) {
    const T* scores = masked.row(i);  // [kv_len]
    T* probs = softmax.probs.row(i);  // [kv_len]
    T largest = sink;                 // subtracted first, so that exp cannot overflow
    bool reads = false;
    for (std::int64_t j = 0; j < p.kv_len; ++j) {
      if (scores[j] > largest) largest = scores[j];
      reads |= is_attended(scores[j]);
    }
    if (!reads) continue;
    T sum = 0;
    for (std::int64_t j = 0; j < p.kv_len; ++j) {
      if (!is_attended(scores[j])) continue;
      probs[j] = std::exp(scores[j] - largest);
      sum += probs[j];
    }
    const T sink_weight = is_attended(sink) ? std::exp(sink - largest) : T{0};
    sum += sink_weight;
    for (std::int64_t j = 0; j < p.kv_len; ++j) {
      if (is_attended(scores[j])) probs[j] /= sum;
    }
    softmax.lse[static_cast<std::size_t>(i)] = largest + std::log(sum);
    softmax.sink_probs[static_cast<std::size_t>(i)] = sink_weight / sum;
  }
  return softmax;
}

template <class T>
Matrix<T> dropped(const AttentionProblem& p, std::int64_t b, std::int64_t h, const Matrix<T>& x) {
  Matrix<T> result = x;
  if (!p.dropout) return result;
  for (std::int64_t i = 0; i < x.rows; ++i)
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const bool kept =
          p.dropout.keeps_pair(p.plane(b, h), static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(j));
      result.row(i)[j] *= kept ? static_cast<T>(p.dropout.scale) : T{0};
    }
  return result;
}

template <class T>
Matrix<T> weighted_values(const Matrix<T>& masked, const Matrix<T>& probs, const Matrix<T>& v) {
  Matrix<T> out(probs.rows, v.cols);
  for (std::int64_t i = 0; i < probs.rows; ++i) {
    for (std::int64_t j = 0; j < probs.cols; ++j) {
      if (!is_attended(masked.row(i)[j])) continue;  // 0 * NaN would be NaN
      const T prob = probs.row(i)[j];
      for (std::int64_t c = 0; c < v.cols; ++c) out.row(i)[c] += prob * v.row(j)[c];
    }
  }
  return out;
}

#define QKV_INSTANTIATE(T)                                                                                 \
  template Matrix<T> gather<T>(const ConstView&, std::int64_t, std::int64_t);                              \
  template void scatter(const Matrix<T>&, const View&, std::int64_t, std::int64_t) noexcept;               \
  template Matrix<T> products(const AttentionProblem&, const Matrix<T>&, const Matrix<T>&);                \
  template Matrix<T> scaled_scores(const AttentionProblem&, Matrix<T>);                                    \
  template Matrix<T> softcapped_scores(const AttentionProblem&, const Matrix<T>&);                         \
  template Matrix<T> masked_scores(const AttentionProblem&, std::int64_t, std::int64_t, const Matrix<T>&); \
  template bool is_attended(T) noexcept;                                                                   \
  template Softmax<T> softmax_rows(const AttentionProblem&, std::int64_t, const Matrix<T>&);               \
  template Matrix<T> dropped(const AttentionProblem&, std::int64_t, std::int64_t, const Matrix<T>&);       \
  template Matrix<T> weighted_values(const Matrix<T>&, const Matrix<T>&, const Matrix<T>&);
QKV_INSTANTIATE(float)
QKV_INSTANTIATE(double)
#undef QKV_INSTANTIATE

}  // namespace qkv::reference
