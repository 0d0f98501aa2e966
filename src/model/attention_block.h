// SPDX-License-Identifier: Apache-2.0
// The attention of a layer, between its norm and the stream: y = attention(x W_Q, x W_K, x W_V) W_O.
#pragma once

#include <cstdint>
#include <vector>

#include "model/linear.h"
#include "model/parameters.h"
#include "model/rotary.h"
#include "model/workspace.h"
#include "qkv/attention.h"
#include "qkv/kv_cache.h"

namespace qkv {

// [batch, ctx, heads, d] in memory, seen as [batch, heads, ctx, d] without a copy.
template <class T>
auto by_head(T* data, const Sequences& s, std::int64_t heads, std::int64_t d) {
  return swap_axes(view(data, Dims{s.batch, s.ctx, heads, d}), 1, 2);
}

inline AttentionOptions causal_options(const Sequences& s) {
  AttentionOptions options;
  options.causal = true;
  options.alignment = Alignment::top_left;
  options.q_lengths.assign(s.lengths.begin(), s.lengths.end());
  options.kv_lengths = options.q_lengths;
  return options;
}

// xn [rows, d_model] -> y [rows, d_model]; leaves q, k, v, heads and lse in `a`. With a cache, the tokens follow those
// already in it (batch 1, no padding), and their keys and values are added to it.
template <class T>
void attention_block_forward(const ModelConfig& c, const Sequences& s, const LayerParameters<const T*>& p,
                             const RotaryTable<T>& table, const T* xn, LayerActivations<T>& a, KvCache* cache, T* y) {
  const std::int64_t rows = s.rows(), first_position = cache ? cache->first_key() + cache->size() : 0;
  const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
  const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;
  T* q = a.q.take(rows * q_size);            // [rows, n_head, head_dim]
  T* k = a.k.take(rows * k_size);            // [rows, n_kv_head, head_dim]
  T* v = a.v.take(rows * v_size);            // [rows, n_kv_head, v_head_dim]
  T* heads = a.heads.take(rows * out_size);  // [rows, n_head, v_head_dim]
  linear_forward(rows, c.d_model, q_size, xn, p.wq, p.bq, q);
  linear_forward(rows, c.d_model, k_size, xn, p.wk, p.bk, k);
  linear_forward(rows, c.d_model, v_size, xn, p.wv, p.bv, v);
  if (c.positions == Positions::rotary) {
    rotary(s, c.n_head, table, first_position, false, q);
    rotary(s, c.n_kv_head, table, first_position, false, k);
  }
  AttentionResults results;
  results.out = by_head(heads, s, c.n_head, c.v_head_dim);
  if (cache) {
    cache->append(by_head(k, s, c.n_kv_head, c.head_dim), by_head(v, s, c.n_kv_head, c.v_head_dim));
    cache->attend(by_head(q, s, c.n_head, c.head_dim), {}, results);
  } else {
    results.lse = view(a.lse.take(s.batch * c.n_head * s.ctx), Dims{s.batch, c.n_head, s.ctx});
    attention(by_head(q, s, c.n_head, c.head_dim), by_head(k, s, c.n_kv_head, c.head_dim),
              by_head(v, s, c.n_kv_head, c.v_head_dim), causal_options(s), results);
  }
  linear_forward(rows, out_size, c.d_model, heads, p.wo, p.bo, y);
}

// forward: heads = attention(q, k, v) with q = turn(xn W_Q), k = turn(xn W_K), v = xn W_V;  y = heads W_O
// xn, dy [rows, d_model] -> dxn [rows, d_model], overwritten; the parameters' gradients are added to g
template <class T>
void attention_block_backward(const ModelConfig& c, const Sequences& s, const LayerParameters<const T*>& p,
                              const RotaryTable<T>& table, const T* xn, LayerActivations<T>& a, const T* dy,
                              Workspace<T>& w, T* dxn, const LayerParameters<T*>& g) {
  const std::int64_t rows = s.rows();
  const std::int64_t q_size = c.n_head * c.head_dim, k_size = c.n_kv_head * c.head_dim;
  const std::int64_t v_size = c.n_kv_head * c.v_head_dim, out_size = c.n_head * c.v_head_dim;
  T* dheads = w.dheads.take(rows * out_size);  // [rows, n_head, v_head_dim]
  T* dq = w.dq.take(rows * q_size);            // [rows, n_head, head_dim]
  T* dk = w.dk.take(rows * k_size);            // [rows, n_kv_head, head_dim]
  T* dv = w.dv.take(rows * v_size);            // [rows, n_kv_head, v_head_dim]
  // y = heads W_O + b_O
  linear_backward_weights(s, out_size, c.d_model, a.heads.get(), dy, g.wo, g.bo);
  linear_backward_input(rows, out_size, c.d_model, dy, p.wo, T{0}, dheads);
  // heads = attention(q, k, v)
  AttentionGradients gradients;
  gradients.dq = by_head(dq, s, c.n_head, c.head_dim);
  gradients.dk = by_head(dk, s, c.n_kv_head, c.head_dim);
  gradients.dv = by_head(dv, s, c.n_kv_head, c.v_head_dim);
  attention_backward(by_head(a.q.get(), s, c.n_head, c.head_dim), by_head(a.k.get(), s, c.n_kv_head, c.head_dim),
                     by_head(a.v.get(), s, c.n_kv_head, c.v_head_dim),
                     by_head(a.heads.get(), s, c.n_head, c.v_head_dim),
                     view(a.lse.get(), Dims{s.batch, c.n_head, s.ctx}), by_head(dheads, s, c.n_head, c.v_head_dim),
                     causal_options(s), gradients);
  if (c.positions == Positions::rotary) {
    rotary(s, c.n_head, table, 0, true, dq);
    rotary(s, c.n_kv_head, table, 0, true, dk);
  }
  // q = xn W_Q + b_Q and so on: xn is read three times, its gradient is the sum
  linear_backward_weights(s, c.d_model, q_size, xn, dq, g.wq, g.bq);
  linear_backward_weights(s, c.d_model, k_size, xn, dk, g.wk, g.bk);
  linear_backward_weights(s, c.d_model, v_size, xn, dv, g.wv, g.bv);
  linear_backward_input(rows, c.d_model, q_size, dq, p.wq, T{0}, dxn);
  linear_backward_input(rows, c.d_model, k_size, dk, p.wk, T{1}, dxn);
  linear_backward_input(rows, c.d_model, v_size, dv, p.wv, T{1}, dxn);
}

}  // namespace qkv
