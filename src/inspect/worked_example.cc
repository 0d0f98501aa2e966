// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <stdexcept>
#include <utility>

#include "inspect/random_values.h"
#include "qkv/explain.h"

namespace qkv {
namespace {

// [1, ctx, heads * d] as [1, heads, ctx, d], copied.
Tensor as_heads(const Tensor& rows, std::int64_t heads) {
  const std::int64_t ctx = rows.shape()[1], d = rows.shape()[2] / heads;
  Tensor t({1, heads, ctx, d}, DType::f64);
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = 0; i < ctx; ++i)
      for (std::int64_t c = 0; c < d; ++c)
        t.data<double>()[(h * ctx + i) * d + c] = rows.data<double>()[(i * heads + h) * d + c];
  return t;
}

}  // namespace

WorkedExample worked_example(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::uint64_t seed) {
  const MultiHeadConfig c = layer.resolved();
  attention_sizes(c, 1, ctx);  // checks
  MultiHeadParameters p = make_multi_head(c, DType::f64);
  const auto deviation = [](std::int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); };
  p.w_q = drawn(p.w_q.shape(), deviation(c.d_model), seed, 1);
  p.w_k = drawn(p.w_k.shape(), deviation(c.d_model), seed, 2);
  p.w_v = drawn(p.w_v.shape(), deviation(c.d_model), seed, 3);
  p.w_o = drawn(p.w_o.shape(), deviation(p.w_o.shape()[0]), seed, 4);
  WorkedExample e;
  e.x = drawn({1, ctx, c.d_model}, 1, seed, 0);
  AttentionOptions options;
  options.path = AttentionPath::reference;
  options.causal = causal;
  if (causal) options.alignment = Alignment::top_left;
  MultiHeadActivations a;
  e.output = multi_head(c, p, e.x, options, &a);
  e.q = as_heads(a.q, c.n_head);
  e.k = as_heads(a.k, c.n_kv_head);
  e.v = as_heads(a.v, c.n_kv_head);
  e.heads = as_heads(a.read, c.n_head);
  const Dims scores{1, c.n_head, ctx, ctx};
  e.scores = e.scaled = e.masked = e.probs = Tensor(scores, DType::f64);
  attention_steps(e.q, e.k, e.v, options, {.scores = e.scaled, .softcapped = {}, .masked = e.masked, .probs = e.probs});
  options.scale = 1;
  attention_steps(e.q, e.k, e.v, options, {.scores = e.scores, .softcapped = {}, .masked = {}, .probs = {}});
  e.residual = e.x;
  for (std::int64_t i = 0; i < e.x.size(); ++i) e.residual.data<double>()[i] += e.output.data<double>()[i];
  return e;
}

std::vector<double> softmax_of(const std::vector<double>& scores) {
  const auto keys = static_cast<std::int64_t>(scores.size());
  if (keys < 1) throw std::invalid_argument("[softmax] scores must be at least one number; found none");
  // q . k = 0 for every key; the scores are added as a mask.
  const Tensor q({1, 1, 1, 1}, DType::f64), k({1, 1, keys, 1}, DType::f64), v({1, 1, keys, 1}, DType::f64);
  Tensor mask({1, 1, 1, keys}, DType::f64), probs({1, 1, 1, keys}, DType::f64);
  std::copy(scores.begin(), scores.end(), mask.data<double>());
  AttentionOptions options;
  options.path = AttentionPath::reference;
  options.mask = std::as_const(mask);
  attention_steps(q, k, v, options, {.scores = {}, .softcapped = {}, .masked = {}, .probs = probs});
  return {probs.data<double>(), probs.data<double>() + keys};
}

}  // namespace qkv
