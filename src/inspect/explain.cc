// SPDX-License-Identifier: Apache-2.0
#include "qkv/explain.h"

#include <stdexcept>

namespace qkv {

AttentionSizes attention_sizes(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx, DType dtype) {
  const MultiHeadConfig c = layer.resolved();
  if (batch < 1 || ctx < 1) {
    throw std::invalid_argument("[explain] batch and ctx must be at least 1; found " + std::to_string(batch) + " and " +
                                std::to_string(ctx));
  }
  element_count({batch, c.n_head, ctx, ctx});  // refuses what no memory could hold
  element_count({batch, ctx, c.n_head, c.head_dim});
  element_count({batch, ctx, c.d_model});
  AttentionSizes s{batch, ctx, c.d_model, c.n_head, c.n_kv_head, c.head_dim, c.v_head_dim};
  s.element_bytes = static_cast<std::int64_t>(dtype_size(dtype));
  s.bias = c.bias;
  return s;
}

std::vector<ExplainedStep> explain_layer(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                                         bool causal, DType dtype) {
  const AttentionSizes s = attention_sizes(layer, batch, ctx, dtype);
  const AttentionWork work = attention_work(s);
  const Dims x{batch, ctx, s.d_model};
  const Dims q_side{batch, ctx, s.n_head * s.d_k}, k_side{batch, ctx, s.n_kv_head * s.d_k};
  const Dims v_side{batch, ctx, s.n_kv_head * s.d_v}, read_side{batch, ctx, s.n_head * s.d_v};
  const Dims q{batch, s.n_head, ctx, s.d_k}, k{batch, s.n_kv_head, ctx, s.d_k}, v{batch, s.n_kv_head, ctx, s.d_v};
  const Dims k_across{batch, s.n_kv_head, s.d_k, ctx}, scores{batch, s.n_head, ctx, ctx};
  const Dims heads{batch, s.n_head, ctx, s.d_v};
  const bool shared = s.n_kv_head != s.n_head;
  std::vector<ExplainedStep> steps;
  const auto add = [&](const char* name, const char* meaning, const char* formula, std::vector<Dims> operands,
                       const Dims& shape, const StepWork& cost) {
    steps.push_back({name, meaning, formula, std::move(operands), shape, cost});
  };
  add("input", "one vector a token: what the blocks before made of it", "X", {}, x, {});
  add("queries", "what does this position want to know?", s.bias ? "Q = X · W_Q + b_Q" : "Q = X · W_Q",
      {x, {s.d_model, s.n_head * s.d_k}}, q_side, work.queries);
  add("keys", "what can this position be found by?", s.bias ? "K = X · W_K + b_K" : "K = X · W_K",
      {x, {s.d_model, s.n_kv_head * s.d_k}}, k_side, work.keys);
  add("values", "what does it hand over when it is read?", s.bias ? "V = X · W_V + b_V" : "V = X · W_V",
      {x, {s.d_model, s.n_kv_head * s.d_v}}, v_side, work.values);
  add("split q", "each head gets its slice; nothing is computed or copied", "Q as heads", {q_side}, q, {});
  add("split k", shared ? "fewer heads than the queries: several of those share one" : "likewise", "K as heads",
      {k_side}, k, {});
  add("split v", "likewise", "V as heads", {v_side}, v, {});
  add("scores", "how well does query i fit key j? one number for every pair", "S = Q · Kᵀ", {q, k_across}, scores,
      work.scores);
  add("scale", "scores of unit variance, whatever d_k is", "S / √d_k", {scores}, scores, work.scale);
  if (causal) {
    add("mask", "position i may read j ≤ i: the rest becomes -inf", "S + M", {scores, {ctx, ctx}}, scores, work.mask);
  }
  add("softmax", "each row becomes weights of at least 0 that sum to 1", "A = softmax(S)", {scores}, scores,
      work.softmax);
  add("weighted sum", "each position mixes the values it may read", "O = A · V", {scores, v}, heads, work.weighted_sum);
  add("concatenate", "the heads side by side; nothing is computed or copied", "O as rows", {heads}, read_side, {});
  add("output", "what the heads found, put back into the model's width", s.bias ? "Y = O · W_O + b_O" : "Y = O · W_O",
      {read_side, {s.n_head * s.d_v, s.d_model}}, x, work.output);
  add("residual", "added to what was there", "X + Y", {x, x}, x, work.residual);
  return steps;
}

}  // namespace qkv
