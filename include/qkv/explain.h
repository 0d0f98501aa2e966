// SPDX-License-Identifier: Apache-2.0
// Attention explained: each step of a layer with its shape, formula and cost; a small example in numbers; and why
// scores are divided by sqrt(d_k), measured. Throws std::invalid_argument. The functions may be called from several
// threads.
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
  StepWork work;  // measure.h; all 0 where nothing is computed (a view)
};

// From X to the residual sum, in the order in which they are computed. causal: whether there is a mask.
std::vector<ExplainedStep> explain_layer(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                                         bool causal = true, DType dtype = DType::f32);
// A model's layer, resolved, with what else it has: norms of Q and K, rotation, its own scale, softcap, ALiBi, window,
// sinks, norms after attention and MLP, and the gated MLP. Norms before, and an MLP that is not gated, are not shown.
std::vector<ExplainedStep> explain_model_layer(const LayerConfig& layer, std::int64_t d_model, std::int64_t batch,
                                               std::int64_t ctx, bool causal = true, DType dtype = DType::f32);
// The same sizes as measure.h wants them.
AttentionSizes attention_sizes(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                               DType dtype = DType::f32);

// One sequence of a layer whose X and weights are drawn: X of unit variance, weights of variance 1 / d_model. f64.
struct WorkedExample {
  Tensor x;         // [1, ctx, d_model]
  Tensor q;         // [1, n_head, ctx, d_k]
  Tensor k;         // [1, n_kv_head, ctx, d_k]
  Tensor v;         // [1, n_kv_head, ctx, d_v]
  Tensor scores;    // [1, n_head, ctx, ctx]  q . k
  Tensor scaled;    // [1, n_head, ctx, ctx]  / sqrt(d_k)
  Tensor masked;    // [1, n_head, ctx, ctx]  -inf where reading is not allowed
  Tensor probs;     // [1, n_head, ctx, ctx]  each row sums to 1
  Tensor heads;     // [1, n_head, ctx, d_v]  probs . v
  Tensor output;    // [1, ctx, d_model]      the heads side by side, . W_O
  Tensor residual;  // [1, ctx, d_model]      x + output
};
WorkedExample worked_example(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::uint64_t seed);

// The softmax of one row of scores, through the reference path: exactly 0 where a score is -inf.
std::vector<double> softmax_of(const std::vector<double>& scores);

// What the scale does at one d_k, measured on `rows` queries that each read `keys` keys, all components drawn
// independently with mean 0 and variance 1. "Plain" is without the scale. The gradient is the Frobenius norm of the
// softmax's Jacobian, diag(p) - p p^T, a mean over the rows.
struct ScalingRow {
  std::int64_t d_k = 0;
  double plain_deviation = 0, scaled_deviation = 0;  // of the scores, from 0: sqrt(d_k) and 1 are expected
  double plain_largest = 0, scaled_largest = 0;      // weight of a row, a mean
  double plain_gradient = 0, scaled_gradient = 0;
};
ScalingRow measure_scaling(std::int64_t d_k, std::int64_t rows = 256, std::int64_t keys = 64, std::uint64_t seed = 1);
// The same as a picture: a complete SVG file that reads well on light and dark ground.
std::string scaling_picture(const std::vector<ScalingRow>& rows);

}  // namespace qkv
