// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>

#include "qkv/measure.h"

namespace qkv {

std::int64_t causal_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start) noexcept {
  // Query i reads clamp(start + i + 1, 0, kv_len) keys: first none, then one more per query, then all.
  const std::int64_t first = std::clamp<std::int64_t>(-start, 0, q_len);  // first query that reads a key
  const std::int64_t full =
      std::clamp<std::int64_t>(kv_len - 1 - start, first, q_len);  // first query that reads all keys
  const std::int64_t rising = full - first;
  return rising * (start + first + 1) + rising * (rising - 1) / 2 + (q_len - full) * kv_len;
}

std::int64_t visible_pairs(std::int64_t q_len, std::int64_t kv_len, std::int64_t start, bool causal,
                           std::int64_t window_left, std::int64_t window_right) noexcept {
  // Keys up to position + right, minus those before position - left: keys up to position - left - 1.
  const std::int64_t all = q_len + kv_len + std::abs(start);  // also unlimited
  window_left = std::min(window_left, all);
  window_right = std::min(window_right, all);
  const bool bounded = causal || window_right >= 0;
  const std::int64_t right = !causal ? window_right : window_right >= 0 ? std::min<std::int64_t>(0, window_right) : 0;
  const std::int64_t up_to = bounded ? causal_pairs(q_len, kv_len, start + right) : q_len * kv_len;
  return window_left < 0 ? up_to : up_to - causal_pairs(q_len, kv_len, start - window_left - 1);
}

double attention_forward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept {
  return pairs * 2.0 * static_cast<double>(d_k + d_v);
}

double attention_backward_flops(double pairs, std::int64_t d_k, std::int64_t d_v) noexcept {
  // Over d_k: recomputed scores, dq, dk. Over d_v: dprobs, dv.
  return pairs * 2.0 * static_cast<double>(3 * d_k + 2 * d_v);
}

namespace {

// [rows, inner] . [inner, columns], optionally + [columns]
StepWork product(double rows, double inner, double columns, const AttentionSizes& s) noexcept {
  const auto size = static_cast<double>(s.element_bytes), bias = s.bias ? 1.0 : 0.0;
  return {0, rows * columns * (2 * inner + bias), size * (rows * inner + (inner + bias) * columns + rows * columns)};
}

}  // namespace

AttentionWork attention_work(const AttentionSizes& s) noexcept {
  const auto batch = static_cast<double>(s.batch), ctx = static_cast<double>(s.ctx);
  const auto width = static_cast<double>(s.d_model), heads = static_cast<double>(s.n_head);
  const auto kv_heads = static_cast<double>(s.n_kv_head), d_k = static_cast<double>(s.d_k);
  const auto d_v = static_cast<double>(s.d_v), size = static_cast<double>(s.element_bytes);
  const double rows = batch * ctx, pairs = rows * heads * ctx;
  const auto on_scores = [&](double flops) { return StepWork{pairs, flops * pairs, 2 * size * pairs}; };
  AttentionWork w;
  w.queries = product(rows, width, heads * d_k, s);
  w.keys = product(rows, width, kv_heads * d_k, s);
  w.values = product(rows, width, kv_heads * d_v, s);
  w.scores = {pairs, 2 * pairs * d_k, size * (rows * (heads + kv_heads) * d_k + pairs)};
  w.scale = on_scores(1);
  w.mask = on_scores(1);
  w.softmax = on_scores(5);
  w.weighted_sum = {pairs, 2 * pairs * d_v, size * (pairs + rows * (kv_heads + heads) * d_v)};
  w.output = product(rows, heads * d_v, width, s);
  w.residual = {0, rows * width, 3 * size * rows * width};
  return w;
}

StepWork AttentionWork::total() const noexcept {
  StepWork sum{scores.scores, 0, 0};  // the number of pairs is the same in every step
  for (const StepWork* w :
       {&queries, &keys, &values, &scores, &scale, &mask, &softmax, &weighted_sum, &output, &residual}) {
    sum.flops += w->flops;
    sum.bytes += w->bytes;
  }
  return sum;
}

std::int64_t matrix_parameters(const ModelConfig& c) noexcept {
  std::int64_t all = c.d_model * c.vocab_size;
  for (std::int64_t i = 0; i < c.n_layer; ++i) {
    const LayerConfig& l = c.layer(i);
    all += c.d_model * (l.n_head * l.head_dim + l.n_kv_head * (l.head_dim + l.v_head_dim)) +
           l.n_head * l.v_head_dim * c.d_model + (l.gated ? 3 : 2) * c.d_model * l.d_ff;
  }
  return all;
}

double forward_flops_per_token(const ModelConfig& c, std::int64_t ctx) noexcept {
  double flops = 2.0 * static_cast<double>(matrix_parameters(c));
  for (std::int64_t i = 0; i < c.n_layer && ctx > 0; ++i) {
    const LayerConfig& l = c.layer(i);
    const double pairs_per_token =
        static_cast<double>(visible_pairs(ctx, ctx, 0, true, l.window_left, -1)) / static_cast<double>(ctx);
    flops += attention_forward_flops(static_cast<double>(l.n_head) * pairs_per_token, l.head_dim, l.v_head_dim);
  }
  return flops;
}

double training_flops_per_token(const ModelConfig& config, std::int64_t ctx) noexcept {
  return 3.0 * forward_flops_per_token(config, ctx);
}

std::int64_t kv_cache_bytes(const ModelConfig& c, std::int64_t tokens, DType dtype) noexcept {
  std::int64_t numbers = 0;  // per token
  for (std::int64_t i = 0; i < c.n_layer; ++i)
    numbers += c.layer(i).n_kv_head * (c.layer(i).head_dim + c.layer(i).v_head_dim);
  return numbers * tokens * static_cast<std::int64_t>(dtype_size(dtype));
}

}  // namespace qkv
