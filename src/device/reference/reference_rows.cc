// SPDX-License-Identifier: Apache-2.0
// Norms and the activations of the MLP, row by row; the formulas are in cpu/norms.cc and cpu/arrays.cc.
#include <cmath>

#include "device/reference/loops.h"
#include "device/reference/reference_device.h"

namespace qkv {

using reference::at;
using reference::row;
using reference::size_of;
using reference::sum_rows;

namespace {

struct Statistics {
  double mean, inverse;
};

Statistics statistics_of(const NormParameters& n, std::int64_t d, const double* x) {
  const auto size = static_cast<double>(d);
  double mean = 0, variance = 0;
  for (std::int64_t j = 0; j < d && n.kind == Norm::layernorm; ++j) mean += x[j] / size;
  for (std::int64_t j = 0; j < d; ++j) variance += (x[j] - mean) * (x[j] - mean) / size;
  return {mean, 1 / std::sqrt(variance + n.eps)};
}

void normalize(const NormParameters& n, std::int64_t d, const Statistics& s, const double* x, double* y) {
  for (std::int64_t j = 0; j < d; ++j) y[j] = (x[j] - s.mean) * s.inverse * at(n.gain, j, 1) + at(n.bias, j, 0);
}

// The gradient of x from that of y -> to, which may alias dy
void input_gradient(const NormParameters& n, std::int64_t d, const Statistics& s, const double* x, const double* dy,
                    bool add, double* to) {
  const auto size = static_cast<double>(d);
  const auto dxhat = [&](std::int64_t j) { return dy[j] * at(n.gain, j, 1); };
  const auto xhat = [&](std::int64_t j) { return (x[j] - s.mean) * s.inverse; };
  double along = 0, shift = 0;
  for (std::int64_t j = 0; j < d; ++j) along += dxhat(j) * xhat(j) / size;
  for (std::int64_t j = 0; j < d && n.kind == Norm::layernorm; ++j) shift += dxhat(j) / size;
  for (std::int64_t j = 0; j < d; ++j) to[j] = (add ? to[j] : 0) + s.inverse * (dxhat(j) - shift - xhat(j) * along);
}

}  // namespace

void ReferenceDevice::norm(const NormParameters& n, const ConstView& x, const View& y, const View& statistics) {
  const std::int64_t d = x.shape[1];
  for (std::int64_t i = 0; i < x.shape[0]; ++i) {
    const Statistics s = statistics_of(n, d, row(x, i));
    normalize(n, d, s, row(x, i), row(y, i));
    row(statistics, i)[0] = s.mean;
    row(statistics, i)[1] = s.inverse;
  }
}

void ReferenceDevice::add_norm(const NormParameters& n, const ConstView& x, const ConstView& delta, const View& sum,
                               const View& y, const View& statistics) {
  add(x, delta, sum);
  norm(n, sum, y, statistics);
}

void ReferenceDevice::norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                                    const ConstView& x, const ConstView& statistics, const ConstView& dy, bool add,
                                    const View& dx, const NormSlots& slots) {
  const std::int64_t d = x.shape[1];
  const auto of = [&](std::int64_t i) { return Statistics{row(statistics, i)[0], row(statistics, i)[1]}; };
  sum_rows(s, steps, slots.gain, d, [&](std::int64_t i, double* leaf) {
    for (std::int64_t j = 0; j < d; ++j) leaf[j] += row(dy, i)[j] * ((row(x, i)[j] - of(i).mean) * of(i).inverse);
  });
  sum_rows(s, steps, slots.bias, d, [&](std::int64_t i, double* leaf) {
    for (std::int64_t j = 0; j < d; ++j) leaf[j] += row(dy, i)[j];
  });
  for (std::int64_t i = 0; i < x.shape[0]; ++i) input_gradient(n, d, of(i), row(x, i), row(dy, i), add, row(dx, i));
}

void ReferenceDevice::group_norm(const NormParameters& n, std::int64_t groups, std::int64_t width, const ConstView& x,
                                 const View& y, const View& statistics) {
  for (std::int64_t i = 0; i < x.shape[0]; ++i)
    for (std::int64_t g = 0; g < groups; ++g) {
      const Statistics s = statistics_of(n, width, row(x, i) + g * width);
      normalize(n, width, s, row(x, i) + g * width, row(y, i) + g * width);
      row(statistics, i)[g] = s.inverse;
    }
}

void ReferenceDevice::group_norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                                          std::int64_t groups, std::int64_t width, const ConstView& x,
                                          const ConstView& statistics, const View& dx, const SlotPointers& dgain) {
  sum_rows(s, steps, dgain, width, [&](std::int64_t i, double* leaf) {
    for (std::int64_t g = 0; g < groups; ++g)
      for (std::int64_t j = 0; j < width; ++j)
        leaf[j] += row(dx, i)[g * width + j] * (row(x, i)[g * width + j] * row(statistics, i)[g]);
  });
  std::vector<double> dy(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < x.shape[0]; ++i)
    for (std::int64_t g = 0; g < groups; ++g) {
      double* slope = row(dx, i) + g * width;  // [width]
      dy.assign(slope, slope + width);
      input_gradient(n, width, {0, row(statistics, i)[g]}, row(x, i) + g * width, dy.data(), false, slope);
    }
}

namespace {

constexpr double kGeluSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
constexpr double kGeluCubic = 0.044715;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double function_of(Activation kind, double u) {
  const double r = u < 0 ? 0 : u;  // NaN propagates, as it is not below 0
  switch (kind) {
    case Activation::relu:
      return r;
    case Activation::relu2:
      return r * r;
    case Activation::gelu:
      return u * sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u));
    case Activation::silu:
      return u * sigmoid(u);
    case Activation::gelu_erf:
      return u / 2 * (1 + std::erf(u / std::sqrt(2.0)));
  }
  return 0;
}

double slope_of(Activation kind, double u) {
  switch (kind) {
    case Activation::relu:
      return u > 0 ? 1 : 0;
    case Activation::relu2:
      return u > 0 ? 2 * u : 0;
    case Activation::gelu: {
      const double s = sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u));
      return s + u * s * (1 - s) * kGeluSlope * (1 + 3 * kGeluCubic * u * u);
    }
    case Activation::silu:
      return sigmoid(u) * (1 + u * (1 - sigmoid(u)));
    case Activation::gelu_erf:
      return (1 + std::erf(u / std::sqrt(2.0))) / 2 + u * std::exp(-u * u / 2) / std::sqrt(2 * std::acos(-1.0));
  }
  return 0;
}

}  // namespace

void ReferenceDevice::activation(Activation kind, bool gated, const ConstView& up, const View& a) {
  const std::int64_t d_ff = a.shape[1];
  for (std::int64_t i = 0; i < a.shape[0]; ++i)
    for (std::int64_t j = 0; j < d_ff; ++j) {
      const double* u = row(up, i);
      row(a, i)[j] = gated ? function_of(kind, u[j]) * u[d_ff + j] : function_of(kind, u[j]);
    }
}

void ReferenceDevice::activation_backward(Activation kind, bool gated, const ConstView& up, const ConstView& da,
                                          const View& dup) {
  const std::int64_t d_ff = da.shape[1];
  for (std::int64_t i = 0; i < da.shape[0]; ++i)
    for (std::int64_t j = 0; j < d_ff; ++j) {
      const double *u = row(up, i), d = row(da, i)[j];
      if (gated) row(dup, i)[d_ff + j] = d * function_of(kind, u[j]);
      row(dup, i)[j] = d * slope_of(kind, u[j]) * (gated ? u[d_ff + j] : 1.0);
    }
}

}  // namespace qkv
