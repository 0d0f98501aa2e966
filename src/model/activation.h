// SPDX-License-Identifier: Apache-2.0
// Activations of the MLP, forward and backward, element by element.
//
//   relu    a = max(u, 0)
//   relu2   a = max(u, 0)^2                                       (So et al., "Primer", 2021)
//   gelu    a = u/2 (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))     (Hendrycks and Gimpel, 2016, the tanh form)
//           which is u * sigmoid(2 sqrt(2/pi) (u + 0.044715 u^3))
//   swiglu  a = g * sigmoid(g) * u                                (Shazeer, "GLU variants", 2020)
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels/row_kernels.h"
#include "model/operand.h"
#include "model/sequences.h"
#include "qkv/model.h"

namespace qkv {

inline RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return RowActivation::relu;
    case Activation::relu2:
      return RowActivation::relu2;
    case Activation::gelu:
      return RowActivation::gelu;
    case Activation::silu:
    case Activation::gelu_erf:
      break;
  }
  return RowActivation::swiglu;
}

inline constexpr double kGeluSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

// f64 is written out; f32 runs on the row kernels. gate [size] (swiglu only), up [size] -> a [size]
inline void activate(Activation kind, std::int64_t size, const double* gate, const double* up, double* a) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (std::int64_t i = 0; i < size; ++i) {
    const double u = up[i], r = u < 0 ? 0 : u;  // NaN stays NaN: it is not below 0
    if (kind == Activation::relu) a[i] = r;
    if (kind == Activation::relu2) a[i] = r * r;
    if (kind == Activation::gelu) a[i] = u * sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u));
    if (kind == Activation::silu) a[i] = gate[i] * sigmoid(gate[i]) * u;
  }
}

//   relu    du = da where u > 0                relu2   du = 2 max(u, 0) da
//   gelu    s = sigmoid(z), z = slope (u + cubic u^3):   du = da (s + u s (1 - s) slope (1 + 3 cubic u^2))
//   swiglu  s = sigmoid(g):   dg = da u s (1 + g (1 - s)),   du = da g s
inline void activate_back(Activation kind, std::int64_t size, const double* gate, const double* up, const double* da,
                          double* dgate, double* dup) {
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  for (std::int64_t i = 0; i < size; ++i) {
    const double u = up[i], d = da[i];
    if (kind == Activation::relu) dup[i] = u > 0 ? d : 0;
    if (kind == Activation::relu2) dup[i] = u > 0 ? 2 * u * d : 0;
    if (kind == Activation::gelu) {
      const double s = sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u));
      dup[i] = d * (s + u * s * (1 - s) * kGeluSlope * (1 + 3 * kGeluCubic * u * u));
    }
    if (kind == Activation::silu) {
      const double g = gate[i], s = sigmoid(g);
      dgate[i] = d * u * s * (1 + g * (1 - s));
      dup[i] = d * g * s;
    }
  }
}

// Calls part(size, offset in up and gate, offset in a) for pieces of a layer's [rows, d_ff]; with swiglu, up holds gate
// and up of a row side by side.
template <class Part>
void for_activation_parts(Activation kind, std::int64_t rows, std::int64_t d_ff, const Part& part) {
  if (kind == Activation::silu)
    return parallel_ranges(rows, rows_per_task(d_ff), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) part(d_ff, i * 2 * d_ff, i * d_ff);
    });
  parallel_ranges(rows * d_ff, kElementsAtOnce,
                  [&](std::int64_t begin, std::int64_t end) { part(end - begin, begin, begin); });
}

// up [rows, d_ff], or [rows, 2, d_ff] for swiglu: gate, then up -> a [rows, d_ff]; a may be up (not for swiglu).
template <class S>
void activation_forward(Activation kind, std::int64_t rows, std::int64_t d_ff, const S* up, S* a) {
  const std::int64_t from_gate = kind == Activation::silu ? d_ff : 0;
  for_activation_parts(kind, rows, d_ff, [=](std::int64_t size, std::int64_t at, std::int64_t out) {
    const S* gate = from_gate ? up + at : nullptr;
    if constexpr (std::is_same_v<S, double>)
      activate(kind, size, gate, up + at + from_gate, a + out);
    else
      row_kernels().of<S>().activation_forward(row_activation(kind), size, gate, up + at + from_gate, a + out);
  });
}

// up as above, da [rows, d_ff] -> dup as up; dup may be da (not for swiglu). For relu, up may be a.
template <class S>
void activation_backward(Activation kind, std::int64_t rows, std::int64_t d_ff, const S* up, const S* da, S* dup) {
  const std::int64_t from_gate = kind == Activation::silu ? d_ff : 0;
  for_activation_parts(kind, rows, d_ff, [=](std::int64_t size, std::int64_t at, std::int64_t out) {
    const S* gate = from_gate ? up + at : nullptr;
    S* dgate = from_gate ? dup + at : nullptr;
    if constexpr (std::is_same_v<S, double>)
      activate_back(kind, size, gate, up + at + from_gate, da + out, dgate, dup + at + from_gate);
    else
      row_kernels().of<S>().activation_backward(row_activation(kind), size, gate, up + at + from_gate, da + out, dgate,
                                                dup + at + from_gate);
  });
}

}  // namespace qkv
