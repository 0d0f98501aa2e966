// SPDX-License-Identifier: Apache-2.0
#include "qkv/explain.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>

#include "qkv/model_members.h"

namespace qkv {

AttentionSizes attention_sizes(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx, DType dtype) {
  const MultiHeadConfig c = layer.resolved();
  if (batch < 1 || ctx < 1) {
    throw std::invalid_argument("[explain] batch and ctx must be at least 1; found " + std::to_string(batch) + " and " +
                                std::to_string(ctx));
  }
  element_count({batch, c.n_head, ctx, ctx});  // throws if the size overflows
  element_count({batch, ctx, c.n_head, c.head_dim});
  element_count({batch, ctx, c.d_model});
  AttentionSizes s{batch, ctx, c.d_model, c.n_head, c.n_kv_head, c.head_dim, c.v_head_dim};
  s.element_bytes = static_cast<std::int64_t>(dtype_size(dtype));
  s.bias = c.bias;
  return s;
}

namespace {

// s.bias: biases of Q, K and V
std::vector<ExplainedStep> plain_steps(const AttentionSizes& s, bool output_bias, bool causal) {
  const std::int64_t batch = s.batch, ctx = s.ctx;
  AttentionWork work = attention_work(s);
  AttentionSizes last = s;
  last.bias = output_bias;
  work.output = attention_work(last).output;
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
  add("input", "one vector per token: the residual stream", "X", {}, x, {});
  add("queries", "what each position looks for", s.bias ? "Q = X · W_Q + b_Q" : "Q = X · W_Q",
      {x, {s.d_model, s.n_head * s.d_k}}, q_side, work.queries);
  add("keys", "what each position is matched by", s.bias ? "K = X · W_K + b_K" : "K = X · W_K",
      {x, {s.d_model, s.n_kv_head * s.d_k}}, k_side, work.keys);
  add("values", "what each position contributes", s.bias ? "V = X · W_V + b_V" : "V = X · W_V",
      {x, {s.d_model, s.n_kv_head * s.d_v}}, v_side, work.values);
  add("split q", "one slice per head; a view, no computation", "Q as heads", {q_side}, q, {});
  add("split k", shared ? "fewer heads than Q: several query heads share one" : "the same", "K as heads", {k_side}, k,
      {});
  add("split v", "the same", "V as heads", {v_side}, v, {});
  add("scores", "how well query i matches key j: one number per pair", "S = Q · Kᵀ", {q, k_across}, scores,
      work.scores);
  add("scale", "gives scores unit variance for any d_k", "S / √d_k", {scores}, scores, work.scale);
  if (causal) {
    add("mask", "position i sees j ≤ i; the rest becomes -inf", "S + M", {scores, {ctx, ctx}}, scores, work.mask);
  }
  add("softmax", "each row becomes weights ≥ 0 that sum to 1", "A = softmax(S)", {scores}, scores, work.softmax);
  add("weighted sum", "each position mixes its visible values", "O = A · V", {scores, v}, heads, work.weighted_sum);
  add("concatenate", "the heads concatenated; a view, no computation", "O as rows", {heads}, read_side, {});
  add("output", "projects back to d_model", output_bias ? "Y = O · W_O + b_O" : "Y = O · W_O",
      {read_side, {s.n_head * s.d_v, s.d_model}}, x, work.output);
  add("residual", "adds to the residual stream", "X + Y", {x, x}, x, work.residual);
  return steps;
}

// The additional steps of a layer's configuration, inserted in order of computation.
class LayerSteps {
 public:
  LayerSteps(const LayerConfig& layer, const AttentionSizes& sizes, bool causal)
      : c_(layer), s_(sizes), causal_(causal), steps_(plain_steps(sizes, layer.output_bias, causal)) {}

  std::vector<ExplainedStep> all() {
    const Dims q{s_.batch, s_.n_head, s_.ctx, s_.d_k}, k{s_.batch, s_.n_kv_head, s_.ctx, s_.d_k};
    if (c_.qk_norm != QkNorm::none) {
      norm_of("q", q, s_.n_head * s_.d_k);
      norm_of("k", k, s_.n_kv_head * s_.d_k);
    }
    if (c_.positions == Positions::rotary) {
      rotation_of("q", q);
      rotation_of("k", k);
    }
    scores();
    residual();
    if (c_.gated) mlp();
    return std::move(steps_);
  }

 private:
  std::vector<ExplainedStep>::iterator find(const std::string& name) {
    return std::find_if(steps_.begin(), steps_.end(), [&](const ExplainedStep& step) { return step.name == name; });
  }
  void insert_before(const std::string& name, ExplainedStep step) { steps_.insert(find(name), std::move(step)); }
  // Work of an elementwise operation: elements read and written once, `parameters` read.
  StepWork on_elements(const Dims& shape, double flops, std::int64_t parameters) const {
    const auto elements = static_cast<double>(element_count(shape));
    return {0, flops * elements,
            static_cast<double>(s_.element_bytes) * (2 * elements + static_cast<double>(parameters))};
  }

  void norm_of(const std::string& which, const Dims& heads, std::int64_t width) {
    const std::int64_t gain = c_.qk_norm == QkNorm::per_head ? s_.d_k : width;
    insert_before("scores", {"norm " + which,
                             c_.qk_norm == QkNorm::per_head
                                 ? "each head's vector divided by its root mean square, times a gain"
                                 : "all heads of a token divided by their root mean square, times a gain",
                             which == "q" ? "Q / rms(Q) ⊙ g_Q" : "K / rms(K) ⊙ g_K",
                             {heads, {gain}},
                             heads,
                             on_elements(heads, 4, gain)});  // square, add, divide, multiply
  }

  void rotation_of(const std::string& which, const Dims& heads) {
    const std::int64_t rotated = rotated_dims(c_);
    Dims part = heads;
    part[3] = rotated;
    std::string meaning =
        "RoPE: pairs of components rotated by position-dependent angles, theta " + number(c_.rope_theta);
    if (rotated != s_.d_k) meaning += ", the first " + std::to_string(rotated) + " of " + std::to_string(s_.d_k);
    if (c_.rope_scaling != RopeScaling{}) meaning += ", frequencies scaled";
    insert_before("scores",
                  {"rotate " + which,
                   meaning,
                   which == "q" ? "rope(Q, i)" : "rope(K, j)",
                   {heads, {s_.ctx, rotated}},  // cosines and sines
                   heads,
                   on_elements(part, 3, s_.ctx * rotated)});  // four multiplications and two additions per pair
  }

  // Steps between q . k and the weights.
  void scores() {
    const Dims shape{s_.batch, s_.n_head, s_.ctx, s_.ctx};
    const auto on_scores = [&](double flops) {
      StepWork work = on_elements(shape, flops, 0);
      work.scores = static_cast<double>(element_count(shape));
      return work;
    };
    if (c_.attention_scale > 0) {
      const auto scale = find("scale");
      scale->formula = "S · " + number(c_.attention_scale);
      scale->meaning = "scale of this layer";
    }
    const std::string next = causal_ ? "mask" : "softmax";
    if (c_.softcap > 0)
      insert_before(
          next,
          {"softcap", "bounds scores to ±" + number(c_.softcap), "C · tanh(S / C)", {shape}, shape, on_scores(3)});
    if (c_.alibi)
      insert_before(next, {"alibi",
                           "penalizes distant keys: one slope per head",
                           "S - m · (i - j)",
                           {shape, {s_.n_head}},
                           shape,
                           on_scores(2)});
    if (causal_ && c_.window_left >= 0)
      find("mask")->meaning =
          "position i sees j from i - " + std::to_string(c_.window_left) + " to i; the rest becomes -inf";
    if (!c_.sinks) return;
    const auto softmax = find("softmax");
    softmax->operands.push_back({s_.n_head});
    softmax->formula = "A = softmax([S, s])";
    softmax->meaning = "a learned logit per head in the denominator: weights sum to less than 1";
  }

  ExplainedStep post_norm(const std::string& name, const Dims& x) const {
    const std::int64_t gain = c_.norm_gain ? s_.d_model : 0;
    return {name, "normalizes the output before it is added", "norm(Y)", {x}, x, on_elements(x, 4, gain)};
  }
  // x + scale * y; -> the residual step
  ExplainedStep sum(const std::string& name, const Dims& x) const {
    ExplainedStep step{name, "adds to the residual stream", "X + Y", {x, x}, x, {}};
    const auto elements = static_cast<double>(element_count(x));
    const bool scaled = c_.residual_scale != 1;
    if (scaled) step.formula = "X + " + number(c_.residual_scale) + " · Y";
    step.work = {0, (scaled ? 2 : 1) * elements, 3 * static_cast<double>(s_.element_bytes) * elements};
    return step;
  }
  void residual() {
    const Dims x{s_.batch, s_.ctx, s_.d_model};
    if (c_.norm_place != NormPlace::before) insert_before("residual", post_norm("post norm", x));
    *find("residual") = sum("residual", x);
  }

  void mlp() {
    const Dims x{s_.batch, s_.ctx, s_.d_model}, h{s_.batch, s_.ctx, c_.d_ff};
    const auto product = [&](const char* name, const char* meaning, std::string formula, const char* bias,
                             const Dims& from, const Dims& to) {
      const auto rows = static_cast<double>(s_.batch * s_.ctx), b = c_.mlp_bias ? 1.0 : 0.0;
      const auto in = static_cast<double>(from[2]), out = static_cast<double>(to[2]);
      if (c_.mlp_bias) formula += bias;
      steps_.push_back({name,
                        meaning,
                        formula,
                        {from, {from[2], to[2]}},
                        to,
                        {0, rows * out * (2 * in + b),
                         static_cast<double>(s_.element_bytes) * (rows * in + (in + b) * out + rows * out)}});
    };
    product("gate", "gates of the MLP features", "G = X · W_gate", " + b_gate", x, h);
    product("up", "MLP features", "U = X · W_up", " + b_up", x, h);
    StepWork work = on_elements(h, 2, element_count(h));  // two inputs; the activation counts as one FLOP
    steps_.push_back({"activation",
                      "each feature times its activated gate",
                      "H = " + std::string(activation()) + "(G) ⊙ U",
                      {h, h},
                      h,
                      work});
    product("down", "projects back to d_model", "Y = H · W_down", " + b_down", h, x);
    if (c_.norm_place != NormPlace::before) steps_.push_back(post_norm("mlp post norm", x));
    steps_.push_back(sum("mlp residual", x));
  }

  std::string_view activation() const { return enum_name(c_.activation); }
  static std::string number(double x) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", x);
    return text;
  }

  const LayerConfig& c_;
  const AttentionSizes& s_;
  bool causal_;
  std::vector<ExplainedStep> steps_;
};

}  // namespace

std::vector<ExplainedStep> explain_layer(const MultiHeadConfig& layer, std::int64_t batch, std::int64_t ctx,
                                         bool causal, DType dtype) {
  return plain_steps(attention_sizes(layer, batch, ctx, dtype), layer.bias, causal);
}

std::vector<ExplainedStep> explain_model_layer(const LayerConfig& layer, std::int64_t d_model, std::int64_t batch,
                                               std::int64_t ctx, bool causal, DType dtype) {
  const AttentionSizes sizes = attention_sizes(
      {d_model, layer.n_head, layer.n_kv_head, layer.head_dim, layer.v_head_dim, layer.qkv_bias}, batch, ctx, dtype);
  return LayerSteps(layer, sizes, causal).all();
}

}  // namespace qkv
