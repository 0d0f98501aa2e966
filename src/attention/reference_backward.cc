// SPDX-License-Identifier: Apache-2.0
// The textbook backward pass; docs/attention.md derives each line. It recomputes the probabilities and the row sums D =
// dout . out = sum_j probs * dprobs from the inputs, so that it is independent of the results it verifies.
#include <algorithm>
#include <vector>

#include "attention/elements.h"
#include "attention/reference.h"
#include "core/parallel.h"

namespace qkv {
namespace {

using reference::Matrix;

// Terms that several heads contribute to; stored per head and summed afterwards, as heads run in parallel.
template <class T>
struct Partials {
  std::vector<T> dscores;  // [batch, n_head, q_len, kv_len] with respect to the masked scores; only for dmask
  std::vector<T> dsinks;   // [batch, n_head]
};

// dprobs = dout . v^T for the unmasked keys, 0 elsewhere                                          [q_len, kv_len]
template <class T>
Matrix<T> probs_gradient(const Matrix<T>& masked, const Matrix<T>& dout, const Matrix<T>& v) {
  Matrix<T> dprobs(masked.rows, masked.cols);
  for (std::int64_t i = 0; i < masked.rows; ++i) {
    for (std::int64_t j = 0; j < masked.cols; ++j) {
      if (!reference::is_attended(masked.row(i)[j])) continue;
      for (std::int64_t c = 0; c < v.cols; ++c) dprobs.row(i)[j] += dout.row(i)[c] * v.row(j)[c];
    }
  }
  return dprobs;
}

// dmasked = probs * (dprobs - D), D[i] = sum_j probs[i][j] dprobs[i][j]                            [q_len, kv_len]
// The sink has no value (dprobs = 0): its gradient is the sum over i of - sink_probs[i] * D[i].
template <class T>
Matrix<T> softmax_gradient(const Matrix<T>& masked, const reference::Softmax<T>& softmax, const Matrix<T>& dprobs,
                           T* dsink) {
  Matrix<T> dmasked(masked.rows, masked.cols);
  for (std::int64_t i = 0; i < masked.rows; ++i) {
    const T* probs = softmax.probs.row(i);  // [kv_len]
    bool reads = false;
    T d = 0;
    for (std::int64_t j = 0; j < masked.cols; ++j) {
      if (!reference::is_attended(masked.row(i)[j])) continue;
      reads = true;
      d += probs[j] * dprobs.row(i)[j];
    }
    for (std::int64_t j = 0; j < masked.cols; ++j) {
      if (reference::is_attended(masked.row(i)[j])) dmasked.row(i)[j] = probs[j] * (dprobs.row(i)[j] - d);
    }
    if (reads) *dsink -= softmax.sink_probs[static_cast<std::size_t>(i)] * d;
  }
  return dmasked;
}

// dscores = dmasked * (1 - (softcapped / softcap)^2), as tanh' = 1 - tanh^2                        [q_len, kv_len]
template <class T>
Matrix<T> softcap_gradient(const AttentionProblem& p, const Matrix<T>& masked, const Matrix<T>& softcapped,
                           const Matrix<T>& dmasked) {
  Matrix<T> dscores = dmasked;
  if (p.softcap == 0) return dscores;
  for (std::size_t e = 0; e < dscores.values.size(); ++e) {
    if (!reference::is_attended(masked.values[e])) continue;
    const T tanh = softcapped.values[e] / static_cast<T>(p.softcap);
    dscores.values[e] *= 1 - tanh * tanh;
  }
  return dscores;
}

// row += factor * other                                                                                          [d]
template <class T>
void add_scaled(T* row, T factor, const T* other, std::int64_t d) noexcept {
  for (std::int64_t c = 0; c < d; ++c) row[c] += factor * other[c];
}

// All query heads that share key head g of sequence b, in order: dk and dv are their sums.
template <class T>
void backward_group(const AttentionProblem& p, std::int64_t b, std::int64_t g, const ConstView& dout_view,
                    const AttentionGradients& gradients, Partials<T>& partials) {
  const Matrix<T> k = reference::gather<T>(p.k, b, g);  // [kv_len, d_k]
  const Matrix<T> v = reference::gather<T>(p.v, b, g);  // [kv_len, d_v]
  const T scale = static_cast<T>(p.scale);
  Matrix<T> dk(p.kv_len, p.d_k), dv(p.kv_len, p.d_v);
  for (std::int64_t h = g * p.group; h < (g + 1) * p.group; ++h) {
    const Matrix<T> q = reference::gather<T>(p.q, b, h);           // [q_len, d_k]
    const Matrix<T> dout = reference::gather<T>(dout_view, b, h);  // [q_len, d_v]
    const Matrix<T> softcapped =
        reference::softcapped_scores(p, reference::scaled_scores(p, reference::products(p, q, k)));
    const Matrix<T> masked = reference::masked_scores(p, b, h, softcapped);
    const auto softmax = reference::softmax_rows(p, h, masked);
    const Matrix<T> dropped = reference::dropped(p, b, h, softmax.probs);
    const Matrix<T> dprobs = reference::dropped(p, b, h, probs_gradient(masked, dout, v));
    T* dsink = &partials.dsinks[static_cast<std::size_t>(b * p.n_head + h)];
    const Matrix<T> dmasked = softmax_gradient(masked, softmax, dprobs, dsink);
    const Matrix<T> dscores = softcap_gradient(p, masked, softcapped, dmasked);

    Matrix<T> dq(p.q_len, p.d_k);
    for (std::int64_t i = 0; i < p.q_len; ++i) {
      for (std::int64_t j = 0; j < p.kv_len; ++j) {
        if (!reference::is_attended(masked.row(i)[j])) continue;
        const T dscore = dscores.row(i)[j] * scale;
        add_scaled(dq.row(i), dscore, k.row(j), p.d_k);                // dq = scale * dscores . k
        add_scaled(dk.row(j), dscore, q.row(i), p.d_k);                // dk = scale * dscores^T . q
        add_scaled(dv.row(j), dropped.row(i)[j], dout.row(i), p.d_v);  // dv = dropped^T . dout
      }
    }
    reference::scatter(dq, gradients.dq, b, h);
    if (gradients.dmask) {
      const std::int64_t head = (b * p.n_head + h) * p.q_len * p.kv_len;
      std::copy(dmasked.values.begin(), dmasked.values.end(), partials.dscores.begin() + head);
    }
  }
  reference::scatter(dk, gradients.dk, b, g);
  reference::scatter(dv, gradients.dv, b, g);
}

// dmask: dmasked summed over the axes along which the mask was broadcast, in the order of their indices.
template <class T>
void store_mask_gradient(const AttentionProblem& p, const View& dmask, const std::vector<T>& dscores) {
  const Dims& s = dmask.strides;
  // Shape of dmask (1 where broadcast), and the shape of the sum for each of its elements (1 where not broadcast).
  Dims kept = dmask.shape, summed = dmask.shape;
  for (int axis = 0; axis < 4; ++axis) (s[axis] == 0 ? kept : summed)[axis] = 1;
  for (std::int64_t b = 0; b < kept[0]; ++b)
    for (std::int64_t h = 0; h < kept[1]; ++h)
      for (std::int64_t i = 0; i < kept[2]; ++i)
        for (std::int64_t j = 0; j < kept[3]; ++j) {
          T sum = 0;
          for (std::int64_t sb = 0; sb < summed[0]; ++sb)
            for (std::int64_t sh = 0; sh < summed[1]; ++sh)
              for (std::int64_t si = 0; si < summed[2]; ++si)
                for (std::int64_t sj = 0; sj < summed[3]; ++sj) {
                  const std::int64_t row = ((b + sb) * p.n_head + h + sh) * p.q_len + i + si;
                  sum += dscores[static_cast<std::size_t>(row * p.kv_len + j + sj)];
                }
          store_element(dmask, b * s[0] + h * s[1] + i * s[2] + j * s[3], sum);
        }
}

template <class T>
void store_sink_gradient(const AttentionProblem& p, const View& dsinks, const std::vector<T>& partial) {
  for (std::int64_t h = 0; h < p.n_head; ++h) {
    T sum = 0;
    for (std::int64_t b = 0; b < p.batch; ++b) sum += partial[static_cast<std::size_t>(b * p.n_head + h)];
    store_element(dsinks, h * dsinks.strides[0], sum);
  }
}

template <class T>
void backward(const AttentionProblem& p, const ConstView& dout, const AttentionGradients& gradients) {
  Partials<T> partials;
  partials.dsinks.resize(static_cast<std::size_t>(p.batch * p.n_head));
  if (gradients.dmask)
    partials.dscores.resize(static_cast<std::size_t>(element_count({p.batch, p.n_head, p.q_len, p.kv_len})));
  parallel_for(p.batch * p.n_kv_head, [&](std::int64_t task) {
    backward_group(p, task / p.n_kv_head, task % p.n_kv_head, dout, gradients, partials);
  });
  if (gradients.dmask) store_mask_gradient(p, broadcast_to_scores(p, gradients.dmask, "dmask"), partials.dscores);
  if (gradients.dsinks) store_sink_gradient(p, gradients.dsinks, partials.dsinks);
}

}  // namespace

void reference_backward(const AttentionProblem& p, const ConstView& /*out*/, const ConstView& /*lse*/,
                        const ConstView& dout, const AttentionGradients& gradients) {
  if (p.q.dtype == DType::f64) {
    backward<double>(p, dout, gradients);
  } else {
    backward<float>(p, dout, gradients);
  }
}

}  // namespace qkv
