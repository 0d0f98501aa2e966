// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/parallel.h"
#include "kernels/row_kernels.h"
#include "qkv/train.h"

namespace qkv {
namespace {

constexpr std::int64_t kRange = 64 * 1024;  // elements one task works on
constexpr std::int64_t kLanes = 16;         // partial sums of a norm, so that it can be vectorised

// Elements [begin, end) of one tensor.
struct Range {
  std::size_t tensor;
  std::int64_t begin, end;
};

std::int64_t ranges_in(std::int64_t size) noexcept { return (size + kRange - 1) / kRange; }

std::int64_t range_count(const std::vector<Tensor>& tensors) noexcept {
  std::int64_t count = 0;
  for (const Tensor& tensor : tensors) count += ranges_in(tensor.size());
  return count;
}

// Range i < range_count(tensors). Found anew each time: next to its work that is nothing, and nothing is allocated.
Range range_at(const std::vector<Tensor>& tensors, std::int64_t i) noexcept {
  std::size_t tensor = 0;
  for (; i >= ranges_in(tensors[tensor].size()); ++tensor) i -= ranges_in(tensors[tensor].size());
  return {tensor, i * kRange, std::min((i + 1) * kRange, tensors[tensor].size())};
}

double sum_of_squares(const float* x, std::int64_t count) noexcept { return row_kernels().sum_of_squares(count, x); }

// The same order in double: 16 interleaved sums, then the rest.
double sum_of_squares(const double* x, std::int64_t count) noexcept {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (std::int64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += x[i + lane] * x[i + lane];
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

// The factors of AdamWFactors (row_kernels.h) and the same formula in double.
struct DoubleFactors {
  double gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, step_size, inverse_root_bias2, eps;
};

void update_range(std::int64_t count, const DoubleFactors& f, double* p, double* m, double* v,
                  const double* gradient) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const double g = gradient[i] * f.gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * g;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
    p[i] = f.keep * p[i] - f.step_size * (m[i] / (std::sqrt(v[i]) * f.inverse_root_bias2 + f.eps));
  }
}

void update_range(std::int64_t count, const AdamWFactors& f, float* p, float* m, float* v,
                  const float* gradient) noexcept {
  row_kernels().adamw_update(count, f, p, m, v, gradient, nullptr);
}

// decays(i): whether weight decay applies to parameter i.
template <class T, class Factors, class Decays>
void update_all(std::vector<Tensor>& parameters, const Decays& decays, std::vector<Tensor>& m, std::vector<Tensor>& v,
                const std::vector<Tensor>& gradients, const TrainConfig& config, double learning_rate,
                double gradient_scale, std::int64_t step) {
  const auto t = static_cast<double>(step);
  Factors factors;
  factors.gradient_scale = static_cast<T>(gradient_scale);
  factors.beta1 = static_cast<T>(config.beta1);
  factors.one_minus_beta1 = static_cast<T>(1 - config.beta1);
  factors.beta2 = static_cast<T>(config.beta2);
  factors.one_minus_beta2 = static_cast<T>(1 - config.beta2);
  factors.step_size = static_cast<T>(learning_rate / (1 - std::pow(config.beta1, t)));
  factors.inverse_root_bias2 = static_cast<T>(1 / std::sqrt(1 - std::pow(config.beta2, t)));
  factors.eps = static_cast<T>(config.eps);
  const T decayed = static_cast<T>(1 - learning_rate * config.weight_decay);
  parallel_for(range_count(parameters), [&](std::int64_t i) {
    const Range range = range_at(parameters, i);
    Factors own = factors;
    own.keep = decays(range.tensor) ? decayed : T{1};
    update_range(range.end - range.begin, own, parameters[range.tensor].data<T>() + range.begin,
                 m[range.tensor].data<T>() + range.begin, v[range.tensor].data<T>() + range.begin,
                 gradients[range.tensor].data<T>() + range.begin);
  });
}

}  // namespace

double global_norm(const std::vector<Tensor>& tensors) {
  std::vector<double> sums(static_cast<std::size_t>(range_count(tensors)));  // one a range, added up in order
  parallel_for(range_count(tensors), [&](std::int64_t i) {
    const Range range = range_at(tensors, i);
    const Tensor& tensor = tensors[range.tensor];
    const std::int64_t count = range.end - range.begin;
    sums[static_cast<std::size_t>(i)] = tensor.dtype() == DType::f64
                                            ? sum_of_squares(tensor.data<double>() + range.begin, count)
                                            : sum_of_squares(tensor.data<float>() + range.begin, count);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

AdamW::AdamW(const Model& model) : m_(model.zeros_like_parameters()), v_(model.zeros_like_parameters()) {}

AdamW::AdamW(const std::vector<Tensor>& parameters) {
  for (const Tensor& parameter : parameters) {
    m_.emplace_back(parameter.shape(), parameter.dtype());
    v_.emplace_back(parameter.shape(), parameter.dtype());
  }
}

void AdamW::check(std::size_t gradients, std::size_t parameters) const {
  if (gradients == m_.size() && parameters == m_.size()) return;
  throw std::invalid_argument("[adamw] expected a gradient a parameter, " + std::to_string(m_.size()) + "; found " +
                              std::to_string(gradients));
}

void AdamW::update(Model& model, const std::vector<Tensor>& gradients, const TrainConfig& config, double learning_rate,
                   double gradient_scale, std::int64_t step) {
  std::vector<Tensor>& parameters = model.parameters();
  check(gradients.size(), parameters.size());
  const auto decays = [&](std::size_t i) { return model.infos()[i].decays; };
  if (model.dtype() == DType::f64) {
    update_all<double, DoubleFactors>(parameters, decays, m_, v_, gradients, config, learning_rate, gradient_scale,
                                      step);
  } else {
    update_all<float, AdamWFactors>(parameters, decays, m_, v_, gradients, config, learning_rate, gradient_scale, step);
  }
}

void AdamW::update(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const TrainConfig& config,
                   double learning_rate, double gradient_scale, std::int64_t step) {
  check(gradients.size(), parameters.size());
  const auto decays = [](std::size_t) { return true; };
  if (!parameters.empty() && parameters[0].dtype() == DType::f64) {
    update_all<double, DoubleFactors>(parameters, decays, m_, v_, gradients, config, learning_rate, gradient_scale,
                                      step);
  } else {
    update_all<float, AdamWFactors>(parameters, decays, m_, v_, gradients, config, learning_rate, gradient_scale, step);
  }
}

}  // namespace qkv
