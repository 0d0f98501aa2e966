// SPDX-License-Identifier: Apache-2.0
#include "qkv/optimizer.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "core/parallel.h"
#include "kernels/row_kernels.h"
#include "train/optimizers.h"

namespace qkv {
namespace {

struct Kind {
  const char* name;
  OptimizerPlan (*plan)(const std::vector<ParameterInfo>&);
  std::unique_ptr<Optimizer> (*make)(const std::vector<ParameterInfo>&, DType);
};

template <class O>
std::unique_ptr<Optimizer> make(const std::vector<ParameterInfo>& parameters, DType dtype) {
  return std::make_unique<O>(parameters, dtype);
}

constexpr Kind kKinds[] = {{.name = "adamw", .plan = AdamW::plan, .make = make<AdamW>},
                           {.name = "muon", .plan = Muon::plan, .make = make<Muon>}};

const Kind& kind_of(std::string_view name) {
  std::string known;
  for (const Kind& kind : kKinds) {
    if (kind.name == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(kind.name);
  }
  throw std::invalid_argument("[optimizer] expected one of " + known + "; found '" + std::string(name) + "'");
}

// Elements [begin, end) of one tensor.
struct Range {
  std::size_t tensor;
  std::int64_t begin, end;
};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Kind& kind : kKinds) names.emplace_back(kind.name);
  return names;
}

std::int64_t OptimizerPlan::elements() const {
  std::int64_t count = work;
  for (const State& tensor : state) count += element_count(tensor.shape);
  return count;
}

OptimizerPlan plan_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters) {
  return kind_of(name).plan(parameters);
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const std::vector<ParameterInfo>& parameters,
                                          DType dtype) {
  return kind_of(name).make(parameters, dtype);
}

std::unique_ptr<Optimizer> make_optimizer(std::string_view name, const Model& model) {
  return make_optimizer(name, model.infos(), model.dtype());
}

Optimizer::Optimizer(std::size_t parameters, const OptimizerPlan& plan, DType dtype) : parameters_(parameters) {
  for (const OptimizerPlan::State& tensor : plan.state) state_.push_back({tensor.name, Tensor(tensor.shape, dtype)});
}

void Optimizer::update(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                       const OptimizerOptions& options, const OptimizerStep& step) {
  for (const std::size_t found : {parameters.size(), gradients.size()})
    if (found != parameters_)
      throw std::invalid_argument("[optimizer] expected " + std::to_string(parameters_) +
                                  " parameters and as many gradients; found " + std::to_string(found));
  apply(parameters, gradients, options, step);
}

double sum_of_squares(const float* x, std::int64_t count) noexcept { return row_kernels().sum_of_squares(count, x); }

// The same summation order, in double: 16 interleaved sums, then the rest.
double sum_of_squares(const double* x, std::int64_t count) noexcept {
  constexpr std::int64_t kSums = 16;
  double sums[kSums] = {};
  std::int64_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (std::int64_t j = 0; j < kSums; ++j) sums[j] += x[i + j] * x[i + j];
  double sum = 0;
  for (const double part : sums) sum += part;
  for (; i < count; ++i) sum += x[i] * x[i];
  return sum;
}

double global_norm(const std::vector<Tensor>& tensors) {
  std::vector<Range> ranges;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    for (std::int64_t begin = 0; begin < tensors[i].size(); begin += kOptimizerRange)
      ranges.push_back({i, begin, std::min(begin + kOptimizerRange, tensors[i].size())});
  std::vector<double> sums(ranges.size());  // one per range, added in order
  parallel_for(static_cast<std::int64_t>(ranges.size()), [&](std::int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    const auto [tensor, begin, end] = ranges[at];
    const Tensor& x = tensors[tensor];
    sums[at] = x.dtype() == DType::f64 ? sum_of_squares(x.data<double>() + begin, end - begin)
                                       : sum_of_squares(x.data<float>() + begin, end - begin);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

}  // namespace qkv
