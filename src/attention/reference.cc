// SPDX-License-Identifier: Apache-2.0
// The textbook forward pass, one head at a time: scores, softcap, mask, softmax, values.
#include "attention/reference.h"

#include "attention/elements.h"

#include <utility>

#include "core/parallel.h"

namespace qkv {
namespace {

using reference::Matrix;

template <class T>
void forward_head(const AttentionProblem& p, std::int64_t b, std::int64_t h, const AttentionResults& results,
                  const AttentionSteps& steps) {
  const Matrix<T> q = reference::gather<T>(p.q, b, h);            // [q_len, d_k]
  const Matrix<T> k = reference::gather<T>(p.k, b, h / p.group);  // [kv_len, d_k]
  const Matrix<T> v = reference::gather<T>(p.v, b, h / p.group);  // [kv_len, d_v]
  Matrix<T> products = reference::products(p, q, k);              // [q_len, kv_len]
  reference::scatter(products, steps.products, b, h);
  const Matrix<T> scores = reference::scaled_scores(p, std::move(products));  // [q_len, kv_len]
  const Matrix<T> softcapped = reference::softcapped_scores(p, scores);       // [q_len, kv_len]
  const Matrix<T> masked = reference::masked_scores(p, b, h, softcapped);     // [q_len, kv_len]
  const auto softmax = reference::softmax_rows(p, h, masked);                 // [q_len, kv_len], lse [q_len]
  const Matrix<T> dropped = reference::dropped(p, b, h, softmax.probs);       // [q_len, kv_len]
  const Matrix<T> out = reference::weighted_values(masked, dropped, v);       // [q_len, d_v]

  reference::scatter(out, results.out, b, h);
  reference::scatter(softmax.probs, results.probs, b, h);
  if (results.lse) {
    const Dims& s = results.lse.strides;
    for (std::int64_t i = 0; i < p.q_len; ++i)
      store_element(results.lse, b * s[0] + h * s[1] + i * s[2], softmax.lse[static_cast<std::size_t>(i)]);
  }
  reference::scatter(scores, steps.scores, b, h);
  reference::scatter(softcapped, steps.softcapped, b, h);
  reference::scatter(masked, steps.masked, b, h);
  reference::scatter(softmax.probs, steps.probs, b, h);
}

}  // namespace

void reference_forward(const AttentionProblem& p, const AttentionResults& results, const AttentionSteps& steps) {
  parallel_for(p.batch * p.n_head, [&](std::int64_t task) {
    const std::int64_t b = task / p.n_head, h = task % p.n_head;
    if (p.q.dtype == DType::f64) {
      forward_head<double>(p, b, h, results, steps);
    } else {
      forward_head<float>(p, b, h, results, steps);
    }
  });
}

}  // namespace qkv
