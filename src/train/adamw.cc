// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/parallel.h"
#include "kernels/row_kernels.h"
#include "train/optimizers.h"

namespace qkv {
namespace {

// AdamWFactors (row_kernels.h) and the same formula, in double.
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
  row_kernels().adamw_update(count, f, p, m, v, gradient);
}

template <class T, class Factors>
Factors factors_of(const OptimizerOptions& options, const OptimizerStep& step) {
  const auto t = static_cast<double>(step.number);
  Factors factors;
  factors.gradient_scale = static_cast<T>(step.gradient_scale);
  factors.beta1 = static_cast<T>(options.beta1);
  factors.one_minus_beta1 = static_cast<T>(1 - options.beta1);
  factors.beta2 = static_cast<T>(options.beta2);
  factors.one_minus_beta2 = static_cast<T>(1 - options.beta2);
  factors.keep = static_cast<T>(1 - step.learning_rate * options.weight_decay);
  factors.step_size = static_cast<T>(step.learning_rate / (1 - std::pow(options.beta1, t)));
  factors.inverse_root_bias2 = static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, t)));
  factors.eps = static_cast<T>(options.eps);
  return factors;
}

std::vector<std::size_t> all_of(const std::vector<ParameterInfo>& parameters) {
  std::vector<std::size_t> all(parameters.size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return all;
}

}  // namespace

AdamWGroup::AdamWGroup(const std::vector<ParameterInfo>& parameters, const std::vector<std::size_t>& chosen) {
  for (const std::size_t parameter : chosen) {
    const std::int64_t size = element_count(parameters[parameter].shape);
    for (std::int64_t begin = 0; begin < size; begin += kOptimizerRange)
      ranges_.push_back({members_.size(), begin, std::min(begin + kOptimizerRange, size)});
    members_.push_back({parameter, parameters[parameter]});
  }
}

void AdamWGroup::plan(OptimizerPlan& plan) const {
  for (const char* prefix : {"adamw.m.", "adamw.v."})
    for (const Member& member : members_) plan.state.push_back({prefix + member.info.name, member.info.shape});
}

void AdamWGroup::update(std::span<OptimizerTensor> own, std::vector<Tensor>& parameters,
                        const std::vector<Tensor>& gradients, const OptimizerOptions& options,
                        const OptimizerStep& step) const {
  const auto update = [&]<class T, class Factors>(const Factors& factors) {
    parallel_for(static_cast<std::int64_t>(ranges_.size()), [&](std::int64_t i) {
      const auto [at, begin, end] = ranges_[static_cast<std::size_t>(i)];
      const Member& member = members_[at];
      Factors used = factors;
      if (!member.info.decays()) used.keep = T{1};
      update_range(end - begin, used, parameters[member.parameter].template data<T>() + begin,
                   own[at].tensor.template data<T>() + begin,
                   own[members_.size() + at].tensor.template data<T>() + begin,
                   gradients[member.parameter].template data<T>() + begin);
    });
  };
  if (members_.empty()) return;
  if (own[0].tensor.dtype() == DType::f64)
    update.template operator()<double>(factors_of<double, DoubleFactors>(options, step));
  else
    update.template operator()<float>(factors_of<float, AdamWFactors>(options, step));
}

OptimizerPlan AdamW::plan(const std::vector<ParameterInfo>& parameters) {
  OptimizerPlan plan;
  AdamWGroup(parameters, all_of(parameters)).plan(plan);
  return plan;
}

AdamW::AdamW(const std::vector<ParameterInfo>& parameters, DType dtype)
    : Optimizer(parameters.size(), plan(parameters), dtype), all_(parameters, all_of(parameters)) {}

void AdamW::apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                  const OptimizerOptions& options, const OptimizerStep& step) {
  all_.update(state(), parameters, gradients, options, step);
}

}  // namespace qkv
