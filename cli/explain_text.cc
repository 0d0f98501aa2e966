// SPDX-License-Identifier: Apache-2.0
#include "explain_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "qkv/display_text.h"

namespace qkv::cli {
namespace {

constexpr const char* kNextLine = "\n                   ";  // continuation line of a step

std::string bytes_text(double bytes) { return amount_text(bytes) + "B"; }

std::string with_commas(double whole) { return qkv::with_commas(fmt::format("{:.0f}", whole)); }

std::string cost_text(const ExplainedStep& step) {
  std::string text;
  if (step.work.scores > 0) text += with_commas(step.work.scores) + " scores, ";
  if (step.work.flops > 0) text += amount_text(step.work.flops) + "FLOP, " + bytes_text(step.work.bytes);
  return text;
}

// One row per line; a row of weights with its sum.
std::string matrix_text(const double* values, std::int64_t rows, std::int64_t cols, bool sums) {
  std::string text;
  for (std::int64_t i = 0; i < rows; ++i) {
    text += fmt::format("  {:>3} |", i);
    double sum = 0;
    for (std::int64_t j = 0; j < cols; ++j) {
      const double value = values[i * cols + j];
      sum += value;
      text += std::isinf(value) ? "    -inf" : fmt::format(" {:7.3f}", std::abs(value) < 5e-4 ? 0.0 : value);
    }
    text += sums ? fmt::format("  | sum {:.3f}\n", sum) : "\n";
  }
  return text;
}

}  // namespace

std::string amount_text(double amount) {
  if (amount < 1e4) return with_commas(amount) + " ";
  int power = 0;
  for (; amount >= 1000 && power < 5; ++power) amount /= 1000;
  return fmt::format("{:.{}f} {}", amount, amount < 10 ? 2 : amount < 100 ? 1 : 0, " kMGTP"[power]);
}

namespace {

// Totals over all steps; the scores are counted once, since all steps use the same pairs.
StepWork total_of(const std::vector<ExplainedStep>& steps) {
  StepWork sum;
  for (const ExplainedStep& step : steps)
    sum = {std::max(sum.scores, step.work.scores), sum.flops + step.work.flops, sum.bytes + step.work.bytes};
  return sum;
}

}  // namespace

std::vector<ExplainedStep> ExplainedLayer::steps() const {
  return own ? explain_model_layer(*own, sizes.d_model, batch, ctx, causal, dtype)
             : explain_layer(sizes, batch, ctx, causal, dtype);
}

std::string steps_text(const ExplainedLayer& layer) {
  const MultiHeadConfig& c = layer.sizes;
  const auto& [sizes, batch, ctx, own, title, causal, dtype] = layer;
  const std::vector<ExplainedStep> steps = layer.steps();
  std::string text = title.empty() ? "" : title + "\n";
  text += fmt::format("{} sequence{} of {} tokens, d_model {}; {} head{}, d_k {}, d_v {}", batch, batch == 1 ? "" : "s",
                      ctx, c.d_model, c.n_head, c.n_head == 1 ? "" : "s", c.head_dim, c.v_head_dim);
  if (c.n_kv_head != c.n_head) text += fmt::format("; {} key/value heads", c.n_kv_head);
  text += fmt::format("; {}, {}\n\n", causal ? "causal" : "full attention", dtype_name(dtype));
  int number = 0;
  for (const ExplainedStep& step : steps) {
    text += fmt::format("  {:>2}  {:<14} {:<24}", number++, step.name, step.formula);
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      const bool sum = step.name == "mask" || step.name == "alibi" || step.name.ends_with("residual");
      text += (i == 0 ? "" : sum ? " + " : " · ") + to_string(step.operands[i]);
    }
    text += (step.operands.empty() ? "" : " → ") + to_string(step.shape);
    if (step.name == "scale" && !(own && own->attention_scale > 0))
      text += fmt::format("   √d_k = {:.4g}", std::sqrt(static_cast<double>(c.head_dim)));
    text += kNextLine + step.meaning;
    const std::string cost = cost_text(step);
    text += (cost.empty() ? "" : kNextLine + cost) + "\n";
  }
  const StepWork total = total_of(steps);
  const auto heads = static_cast<double>(batch * c.n_head);
  const double a_head = static_cast<double>(ctx) * static_cast<double>(ctx);
  const auto readable = static_cast<double>(visible_pairs(ctx, ctx, 0, causal, own && causal ? own->window_left : -1));
  text +=
      fmt::format("\n  total              {}FLOP, {}; {} scores, {} per head and sequence\n", amount_text(total.flops),
                  bytes_text(total.bytes), with_commas(total.scores), with_commas(a_head));
  text += fmt::format(
      "  the tiled path     stores no scores and computes only the {} visible pairs per head ({:.1f} %):{}{}FLOP for "
      "scores and weighted sum instead of {}FLOP\n",
      with_commas(readable), 100 * readable / a_head, kNextLine,
      amount_text(attention_forward_flops(heads * readable, c.head_dim, c.v_head_dim)),
      amount_text(attention_forward_flops(heads * a_head, c.head_dim, c.v_head_dim)));
  return text;
}

std::string steps_json(const ExplainedLayer& layer) {
  using Json = nlohmann::ordered_json;
  const MultiHeadConfig& c = layer.sizes;
  const std::vector<ExplainedStep> list = layer.steps();
  const auto work_json = [](const StepWork& w) {
    return Json{{"scores", w.scores}, {"flops", w.flops}, {"bytes", w.bytes}};
  };
  Json steps = Json::array();
  for (const ExplainedStep& step : list) {
    Json one = {{"name", step.name}, {"formula", step.formula}, {"operands", Json::array()}, {"shape", Json::array()}};
    for (const Dims& dims : step.operands)
      one["operands"].push_back(std::vector<std::int64_t>(dims.begin(), dims.end()));
    one["shape"] = std::vector<std::int64_t>(step.shape.begin(), step.shape.end());
    one.update(work_json(step.work));
    steps.push_back(std::move(one));
  }
  const Json all = {{"batch", layer.batch},
                    {"ctx", layer.ctx},
                    {"d_model", c.d_model},
                    {"n_head", c.n_head},
                    {"n_kv_head", c.n_kv_head},
                    {"head_dim", c.head_dim},
                    {"v_head_dim", c.v_head_dim},
                    {"causal", layer.causal},
                    {"dtype", std::string(dtype_name(layer.dtype))},
                    {"steps", std::move(steps)},
                    {"total", work_json(total_of(list))}};
  return all.dump(2) + "\n";
}

std::string example_text(const MultiHeadConfig& layer, std::int64_t ctx, bool causal, std::int64_t head,
                         std::uint64_t seed) {
  const MultiHeadConfig c = layer.resolved();
  const WorkedExample e = worked_example(c, ctx, causal, seed);
  const std::int64_t kv_head = head / (c.n_head / c.n_kv_head);
  std::string text;
  const auto show = [&](const std::string& title, const Tensor& t, std::int64_t of, bool sums = false) {
    const std::int64_t rows = t.shape()[t.shape().rank() - 2], cols = t.shape()[t.shape().rank() - 1];
    text += title + "  " + to_string({rows, cols}) + "\n" +
            matrix_text(t.data<double>() + of * rows * cols, rows, cols, sums) + "\n";
  };
  text += fmt::format("One sequence of {} tokens, random (seed {}); head {} of {}\n\n", ctx, seed, head, c.n_head);
  show("X: one row per token", e.x, 0);
  show("Q = X · W_Q, columns of this head", e.q, head);
  show("K = X · W_K", e.k, kv_head);
  show("V = X · W_V", e.v, kv_head);
  show("S = Q · Kᵀ: row i, column j is query i · key j", e.scores, head);
  show(fmt::format("S / √d_k, √{} = {:.4g}", c.head_dim, std::sqrt(static_cast<double>(c.head_dim))), e.scaled, head);
  if (causal) show("S + M: future keys are -inf", e.masked, head);
  show("A = softmax(S): weights", e.probs, head, true);
  show("O = A · V: each row is a weighted mean of the values", e.heads, head);
  show("Y = concatenated heads · W_O", e.output, 0);
  show("X + Y: input of the next layer", e.residual, 0);
  return text + "Weights show how values are mixed. They are not evidence of meaning.\n";
}

std::string scaling_text(const std::vector<ScalingRow>& rows) {
  std::string text =
      "q and k: independent components, mean 0, variance 1; 256 queries, 64 keys\n\n"
      "                 std of scores           largest weight          gradient of softmax\n"
      "    d_k    √d_k    q · k  q · k/√d_k   without      with √d_k   without      with √d_k\n";
  for (const ScalingRow& r : rows) {
    text += fmt::format("  {:>5}  {:>6.4g}  {:>7.2f}  {:>10.3f}  {:>8.3f}  {:>12.3f}  {:>8.2g}  {:>12.2g}\n", r.d_k,
                        std::sqrt(static_cast<double>(r.d_k)), r.plain_deviation, r.scaled_deviation, r.plain_largest,
                        r.scaled_largest, r.plain_gradient, r.scaled_gradient);
  }
  return text +
         "\nWithout the scale, scores grow as √d_k, one key gets nearly all the weight, and the gradient of the other\n"
         "keys vanishes. With the scale, all of this is independent of the head size.\n";
}

}  // namespace qkv::cli
