// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "core/parallel.h"
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

std::vector<Range> ranges_of(const std::vector<Tensor>& tensors) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::int64_t begin = 0; begin < tensors[i].size(); begin += kRange) {
      ranges.push_back({i, begin, std::min(begin + kRange, tensors[i].size())});
    }
  }
  return ranges;
}

template <class T>
double sum_of_squares(const T* x, std::int64_t count) noexcept {
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(x[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

template <class T>
struct Factors {
  T gradient_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, keep, step_size, inverse_root_bias2, eps;
};

template <class T>
void update_range(T* __restrict p, T* __restrict m, T* __restrict v, const T* __restrict gradient, std::int64_t count,
                  const Factors<T>& f) noexcept {
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * f.gradient_scale;
    m[i] = f.beta1 * m[i] + f.one_minus_beta1 * g;
    v[i] = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
    p[i] = f.keep * p[i] - f.step_size * (m[i] / (std::sqrt(v[i]) * f.inverse_root_bias2 + f.eps));
  }
}

template <class T>
void update_all(Model& model, std::vector<Tensor>& m, std::vector<Tensor>& v, const std::vector<Tensor>& gradients,
                const TrainConfig& config, double learning_rate, double gradient_scale, std::int64_t step) {
  const auto t = static_cast<double>(step);
  Factors<T> factors;
  factors.gradient_scale = static_cast<T>(gradient_scale);
  factors.beta1 = static_cast<T>(config.beta1);
  factors.one_minus_beta1 = static_cast<T>(1 - config.beta1);
  factors.beta2 = static_cast<T>(config.beta2);
  factors.one_minus_beta2 = static_cast<T>(1 - config.beta2);
  factors.step_size = static_cast<T>(learning_rate / (1 - std::pow(config.beta1, t)));
  factors.inverse_root_bias2 = static_cast<T>(1 / std::sqrt(1 - std::pow(config.beta2, t)));
  factors.eps = static_cast<T>(config.eps);
  const T decayed = static_cast<T>(1 - learning_rate * config.weight_decay);
  const auto ranges = ranges_of(model.parameters());
  parallel_for(static_cast<std::int64_t>(ranges.size()), [&](std::int64_t i) {
    const Range& range = ranges[static_cast<std::size_t>(i)];
    Factors<T> own = factors;
    own.keep = model.infos()[range.tensor].decays ? decayed : T{1};
    update_range(model.parameters()[range.tensor].data<T>() + range.begin, m[range.tensor].data<T>() + range.begin,
                 v[range.tensor].data<T>() + range.begin, gradients[range.tensor].data<T>() + range.begin,
                 range.end - range.begin, own);
  });
}

}  // namespace

double global_norm(const std::vector<Tensor>& tensors) {
  const auto ranges = ranges_of(tensors);
  std::vector<double> sums(ranges.size());  // one a range, added up in order
  parallel_for(static_cast<std::int64_t>(ranges.size()), [&](std::int64_t i) {
    const Range& range = ranges[static_cast<std::size_t>(i)];
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

void AdamW::update(Model& model, const std::vector<Tensor>& gradients, const TrainConfig& config, double learning_rate,
                   double gradient_scale, std::int64_t step) {
  if (gradients.size() != m_.size() || model.parameters().size() != m_.size()) {
    throw std::invalid_argument("[adamw] expected a gradient a parameter, " + std::to_string(m_.size()) + "; found " +
                                std::to_string(gradients.size()));
  }
  if (model.dtype() == DType::f64) {
    update_all<double>(model, m_, v_, gradients, config, learning_rate, gradient_scale, step);
  } else {
    update_all<float>(model, m_, v_, gradients, config, learning_rate, gradient_scale, step);
  }
}

}  // namespace qkv
