// SPDX-License-Identifier: Apache-2.0
#include "model/prepared.h"

#include <algorithm>
#include <array>
#include <span>
#include <stdexcept>

#include "core/parallel.h"

namespace qkv {
namespace {

template <class T>
void set(DType operand, std::int64_t in, std::span<const MatrixPart<T>> parts, bool backward, Weights& w) {
  std::int64_t out = 0;
  for (const MatrixPart<T>& part : parts) out += part.columns;
  if (w.in() != in || w.out() != out) w = Weights(operand, in, out);
  w.prepare(parts, backward);
}

template <class T>
struct BiasPart {
  const T* data;  // null: no bias
  std::int64_t size;
};

template <class T>
std::vector<T> joined(std::span<const BiasPart<T>> parts) {
  std::vector<T> all;
  for (const auto& [data, size] : parts)
    if (data) all.insert(all.end(), data, data + size);
  return all;
}

template <class T>
void set_layer(DType operand, const ModelConfig& c, const LayerParameters<const T*>& p, bool backward,
               PreparedLayer<T>& layer) {
  const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
  const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;
  const std::array<MatrixPart<T>, 3> qkv{{{p.wq, q_size}, {p.wk, k_size}, {p.wv, v_size}}};
  const std::array<BiasPart<T>, 3> qkv_bias{{{p.bq, q_size}, {p.bk, k_size}, {p.bv, v_size}}};
  set<T>(operand, c.d_model, qkv, backward, layer.qkv);
  layer.qkv_bias = joined<T>(qkv_bias);
  const std::array<MatrixPart<T>, 1> wo{{{p.wo, c.d_model}}}, down{{{p.w_down, c.d_model}}};
  set<T>(operand, out_size, wo, backward, layer.wo);
  set<T>(operand, c.d_ff, down, backward, layer.down);
  const std::array<MatrixPart<T>, 2> up{{{p.w_gate, c.d_ff}, {p.w_up, c.d_ff}}};
  const std::array<BiasPart<T>, 2> up_bias{{{p.b_gate, c.d_ff}, {p.b_up, c.d_ff}}};
  const std::size_t from = c.gated ? 0 : 1;
  set<T>(operand, c.d_model, std::span(up).subspan(from), backward, layer.up);
  layer.up_bias = joined<T>(std::span(up_bias).subspan(from));
}

}  // namespace

template <class T, class S>
void PreparedModel<T, S>::prepare(const ModelConfig& c, const ModelParameters<const T*>& p, bool with_backward) {
  if (ready && (backward || !with_backward)) return;
  if (stored) throw std::logic_error("[model] parameters that are kept as stored have no gradients");
  ready = false;
  layers.resize(p.layers.size());
  // A layer a task: memory that is new is then cleared by all threads.
  parallel_for(static_cast<std::int64_t>(layers.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    set_layer(dtype_of<S>, c, p.layers[at], with_backward, layers[at]);
  });
  if (head.in() != c.d_model) head = Weights(dtype_of<S>, c.d_model, padded_vocab(c));
  if (c.tied_head) {
    head.prepare_transposed(p.token_embedding, c.vocab_size, with_backward);
  } else {
    const MatrixPart<T> part{p.head, c.vocab_size};
    head.prepare<T>({&part, 1}, with_backward);
  }
  ready = true;
  backward = with_backward;
}

template <class T, class S>
bool PreparedModel<T, S>::has_few_rows(std::int64_t rows) const {
  return head.has_few_rows(rows) && std::all_of(layers.begin(), layers.end(), [=](const PreparedLayer<T>& layer) {
           return layer.qkv.has_few_rows(rows) && layer.wo.has_few_rows(rows) && layer.up.has_few_rows(rows) &&
                  layer.down.has_few_rows(rows);
         });
}

template struct PreparedModel<float, float>;
template struct PreparedModel<float, bf16>;
template struct PreparedModel<double, double>;

}  // namespace qkv
