// SPDX-License-Identifier: Apache-2.0
// Attention explained: each step of a layer with its shape, formula and cost; a small numerical example; and
// measurements that show why scores are divided by sqrt(d_k). Throws std::invalid_argument. The functions are
// thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "qkv/attention.h"
#include "qkv/measure.h"
#include "qkv/model_config.h"
#include "qkv/multi_head.h"
#include "qkv/tensor.h"

namespace qkv {

struct ExplainedStep {
  std::string name;     // "queries"
  std::string meaning;  // "what each position looks for"
  std::string formula;  // "Q = X · W_Q"
  std::vector<Dims> operands;
  Dims shape;     // of the result
  StepWork work;  // measure.h; all 0 if nothing is computed (a view)
};

// The steps from X to the residual sum, in order of computation. causal: with a causal mask.
std::vector<ExplainedStep> explain_layer(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                                         bool causal = true, DType dtype = DType::f32);
// The same for a resolved model layer, including QK-norm, RoPE, custom scale, softcap, ALiBi, window, sinks, post-norms
// and gated MLP. Pre-norms and non-gated MLPs are not shown.
std::vector<ExplainedStep> explain_model_layer(const LayerConfig& layer, std::int64_t d_model, std::int64_t batch,
                                               std::int64_t ctx, bool causal = true, DType dtype = DType::f32);
// The same sizes in measure.h's form.
AttentionSizes attention_sizes(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                               DType dtype = DType::f32);

// One sequence through a layer with random X (unit variance) and random weights (variance 1 / d_model). f64.
struct WorkedExample {
  Tensor x;         // [1, ctx, d_model]
  Tensor q;         // [1, n_head, ctx, d_k]
  Tensor k;         // [1, n_kv_head, ctx, d_k]
  Tensor v;         // [1, n_kv_head, ctx, d_v]
  Tensor scores;    // [1, n_head, ctx, ctx]  q . k
  Tensor scaled;    // [1, n_head, ctx, ctx]  / sqrt(d_k)
  Tensor masked;    // [1, n_head, ctx, ctx]  -inf for masked keys
  Tensor probs;     // [1, n_head, ctx, ctx]  each row sums to 1
  Tensor heads;     // [1, n_head, ctx, d_v]  probs . v
  Tensor output;    // [1, ctx, d_model]      concatenated heads . W_O
  Tensor residual;  // [1, ctx, d_model]      x + output
};
WorkedExample worked_example(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::uint64_t seed);

// Softmax of one row of scores, by the reference path: exactly 0 where a score is -inf.
std::vector<double> softmax_of(const std::vector<double>& scores);

// Effect of the scale at one d_k, measured on `rows` queries over `keys` keys each; all components are independent
// random numbers with mean 0 and variance 1. "Plain" is without the scale. The gradient is the Frobenius norm of the
// softmax Jacobian, diag(p) - p p^T, averaged over the rows.
struct ScalingRow {
  std::int64_t d_k = 0;
  double plain_deviation = 0, scaled_deviation = 0;  // RMS of the scores; expected: sqrt(d_k) and 1
  double plain_largest = 0, scaled_largest = 0;      // largest weight of a row, mean over rows
  double plain_gradient = 0, scaled_gradient = 0;
};
ScalingRow measure_scaling(std::int64_t d_k, std::int64_t rows = 256, std::int64_t keys = 64, std::uint64_t seed = 1);
// The same as a chart: a complete SVG file, legible on light and dark backgrounds.
std::string scaling_picture(const std::vector<ScalingRow>& rows);

}  // namespace qkv
