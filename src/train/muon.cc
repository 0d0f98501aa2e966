// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "linalg/gemm.h"
#include "train/optimizers.h"

namespace qkv {
namespace {

constexpr int kIterations = 5;
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;
constexpr double kRootMeanSquare = 0.2;  // of an update, similar to AdamW's

struct Groups {
  std::vector<std::size_t> matrices, rest;
};

// Matrices that map one activation vector to another: no embedding tables, no head.
Groups groups_of(const std::vector<ParameterInfo>& parameters) {
  Groups groups;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    (kind_of(parameters[i].role) == ParameterKind::matrix ? groups.matrices : groups.rest).push_back(i);
  return groups;
}

// Work elements for a matrix [in, out]: U, X and the next X [rows, columns], A and a A^2 + b A [rows, rows].
std::int64_t work_of(const Dims& shape) {
  const std::int64_t rows = std::min(shape[0], shape[1]);
  return 2 * shape[0] * shape[1] + 2 * rows * rows;
}

// to [columns, rows] = scale * from [rows, columns], transposed; or scale * from, not transposed
template <class T>
void scaled(bool transpose, std::int64_t rows, std::int64_t columns, double scale, const T* from, T* to) {
  constexpr std::int64_t kRows = 32;
  parallel_ranges(rows, kRows, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t j = 0; transpose && j < columns; ++j)
      for (std::int64_t i = begin; i < end; ++i)
        to[j * rows + i] = static_cast<T>(scale * static_cast<double>(from[i * columns + j]));
    for (std::int64_t i = begin * columns; !transpose && i < end * columns; ++i)
      to[i] = static_cast<T>(scale * static_cast<double>(from[i]));
  });
}

template <class T>
double norm(const T* x, std::int64_t size) {
  std::vector<double> sums(static_cast<std::size_t>((size + kOptimizerRange - 1) / kOptimizerRange));
  parallel_ranges(size, kOptimizerRange, [&](std::int64_t begin, std::int64_t end) {
    sums[static_cast<std::size_t>(begin / kOptimizerRange)] = sum_of_squares(x + begin, end - begin);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum);
}

// The iteration on x [rows, columns], rows <= columns, of norm 1. next: buffer of the same size; a, b: buffers [rows,
// rows]. Returns the buffer with the result, x or next.
template <class T>
T* newton_schulz(std::int64_t rows, std::int64_t columns, T* x, T* next, T* a, T* b) {
  for (int i = 0; i < kIterations; ++i) {
    gemm(false, true, rows, rows, columns, x, columns, x, columns, T{0}, a, rows);
    gemm(false, false, rows, rows, rows, a, rows, a, rows, T{0}, b, rows);
    parallel_ranges(rows * rows, kOptimizerRange, [=](std::int64_t begin, std::int64_t end) {
      for (std::int64_t j = begin; j < end; ++j) b[j] = static_cast<T>(kB) * a[j] + static_cast<T>(kC) * b[j];
    });
    parallel_ranges(rows * columns, kOptimizerRange,
                    [=](std::int64_t begin, std::int64_t end) { std::copy(x + begin, x + end, next + begin); });
    gemm(false, false, rows, columns, rows, b, rows, x, columns, static_cast<T>(kA), next, columns);
    std::swap(x, next);
  }
  return x;
}

// Updates one matrix w [in, out] with momentum m and gradient g
template <class T>
void update_matrix(const Dims& shape, bool decays, T* w, T* m, const T* g, T* work, const OptimizerOptions& options,
                   const OptimizerStep& step) {
  const std::int64_t in = shape[0], out = shape[1], size = in * out;
  const std::int64_t rows = std::min(in, out), columns = std::max(in, out);
  const bool transpose = in > out;
  T *u = work, *x = u + size, *a = x + size, *b = a + rows * rows;
  const T momentum = static_cast<T>(options.muon_momentum), scale = static_cast<T>(step.gradient_scale);
  parallel_ranges(size, kOptimizerRange, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = scale * g[i];
      m[i] = momentum * m[i] + gradient;
      u[i] = gradient + momentum * m[i];
    }
  });
  const double length = norm(u, size);
  const double change = length > 0 ? step.learning_rate * kRootMeanSquare * std::sqrt(static_cast<double>(columns)) : 0;
  if (length > 0) {
    scaled(transpose, in, out, 1 / length, u, x);
    T* result = newton_schulz(rows, columns, x, u, a, b);
    scaled(transpose, rows, columns, change, result, result == x ? u : x);
    u = result == x ? u : x;
  }
  const T keep = static_cast<T>(decays ? 1 - step.learning_rate * options.weight_decay : 1.0);
  parallel_ranges(size, kOptimizerRange, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) w[i] = keep * w[i] - (change > 0 ? u[i] : T{0});
  });
}

}  // namespace

OptimizerPlan Muon::plan(const std::vector<ParameterInfo>& parameters) {
  const Groups groups = groups_of(parameters);
  OptimizerPlan plan;
  for (const std::size_t i : groups.matrices) {
    plan.state.push_back({"muon.m." + parameters[i].name, parameters[i].shape});
    plan.work = std::max(plan.work, work_of(parameters[i].shape));
  }
  AdamWGroup(parameters, groups.rest).plan(plan);
  return plan;
}

Muon::Muon(const std::vector<ParameterInfo>& parameters, DType dtype)
    : Optimizer(parameters.size(), plan(parameters), dtype),
      rest_(parameters, groups_of(parameters).rest),
      work_(Dims{plan(parameters).work}, dtype) {
  for (const std::size_t i : groups_of(parameters).matrices) matrices_.push_back({i, parameters[i].decays()});
}

void Muon::apply(std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients, const OptimizerOptions& options,
                 const OptimizerStep& step) {
  for (std::size_t i = 0; i < matrices_.size(); ++i) {  // sequentially; the products use all threads
    const auto [parameter, decays] = matrices_[i];
    const auto update = [&]<class T>(T* work) {
      update_matrix(parameters[parameter].shape(), decays, parameters[parameter].template data<T>(),
                    state()[i].tensor.template data<T>(), gradients[parameter].template data<T>(), work, options, step);
    };
    if (work_.dtype() == DType::f64)
      update(work_.data<double>());
    else
      update(work_.data<float>());
  }
  rest_.update(std::span(state()).subspan(matrices_.size()), parameters, gradients, options, step);
}

}  // namespace qkv
