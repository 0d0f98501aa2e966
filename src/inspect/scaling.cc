// SPDX-License-Identifier: Apache-2.0
// Measures why scores are divided by sqrt(d_k). Vaswani et al. (2017), section 3.2.1.
#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "inspect/random_values.h"
#include "page/svg_lines.h"
#include "qkv/explain.h"

namespace qkv {
namespace {

struct Measured {
  double deviation, largest, gradient;
};

// scores, probs [rows, keys]
Measured measure(const Tensor& scores, const Tensor& probs, std::int64_t rows, std::int64_t keys) {
  Measured m{0, 0, 0};
  for (std::int64_t i = 0; i < rows; ++i) {
    const double* s = scores.data<double>() + i * keys;
    const double* p = probs.data<double>() + i * keys;
    double largest = 0, squares = 0, cubes = 0;
    for (std::int64_t j = 0; j < keys; ++j) {
      m.deviation += s[j] * s[j];
      largest = std::max(largest, p[j]);
      squares += p[j] * p[j];
      cubes += p[j] * p[j] * p[j];
    }
    m.largest += largest;
    // The squared Frobenius norm of diag(p) - p p^T is sum p^2 - 2 sum p^3 + (sum p^2)^2.
    m.gradient += std::sqrt(std::max(0.0, squares - 2 * cubes + squares * squares));
  }
  const auto count = static_cast<double>(rows);
  return {std::sqrt(m.deviation / (count * static_cast<double>(keys))), m.largest / count, m.gradient / count};
}

}  // namespace

ScalingRow measure_scaling(std::int64_t d_k, std::int64_t rows, std::int64_t keys, std::uint64_t seed) {
  if (d_k < 1 || rows < 1 || keys < 2) {
    throw std::invalid_argument("[scaling] d_k and rows must be at least 1 and keys at least 2; found " +
                                std::to_string(d_k) + ", " + std::to_string(rows) + " and " + std::to_string(keys));
  }
  const auto stream = static_cast<std::uint64_t>(d_k);
  const Tensor q = drawn({1, 1, rows, d_k}, 1, seed, 2 * stream), k = drawn({1, 1, keys, d_k}, 1, seed, 2 * stream + 1);
  const Tensor v({1, 1, keys, 1}, DType::f64);
  Tensor scores({1, 1, rows, keys}, DType::f64), probs({1, 1, rows, keys}, DType::f64);
  AttentionOptions options;
  options.path = AttentionPath::reference;
  const auto run = [&] {
    attention_steps(q, k, v, options, {.scores = scores, .softcapped = {}, .masked = {}, .probs = probs});
    return measure(scores, probs, rows, keys);
  };
  const Measured scaled = run();
  options.scale = 1;
  const Measured plain = run();
  return {d_k, plain.deviation, scaled.deviation, plain.largest, scaled.largest, plain.gradient, scaled.gradient};
}

std::string scaling_picture(const std::vector<ScalingRow>& rows) {
  SvgPanel spread{"Standard deviation of the scores", "d_k", {}};
  SvgPanel slope{"Gradient of the softmax", "d_k", {}};
  SvgLine grows{"q · k", "plain", {}}, steady{"q · k / √d_k", "scaled", {}}, root{"√d_k", "expected", {}};
  SvgLine vanishes{"without the scale", "plain", {}}, stays{"with the scale", "scaled", {}};
  for (const ScalingRow& row : rows) {
    const auto d = static_cast<double>(row.d_k);
    root.points.emplace_back(d, std::sqrt(d));
    grows.points.emplace_back(d, row.plain_deviation);
    steady.points.emplace_back(d, row.scaled_deviation);
    vanishes.points.emplace_back(d, row.plain_gradient);
    stays.points.emplace_back(d, row.scaled_gradient);
  }
  spread.lines = {root, grows, steady};
  slope.lines = {vanishes, stays};
  return svg_lines("Why attention divides by √d_k", {spread, slope});
}

}  // namespace qkv
