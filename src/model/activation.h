// SPDX-License-Identifier: Apache-2.0
// Activations of the MLP, forward and backward, element by element.
//
//   relu    a = max(u, 0)
//   relu2   a = max(u, 0)^2                                       (So et al., "Primer", 2021)
//   gelu    a = u/2 (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))     (Hendrycks and Gimpel, 2016, the tanh form)
//           which is u * sigmoid(2 sqrt(2/pi) (u + 0.044715 u^3))
//   swiglu  a = g * sigmoid(g) * u                                (Shazeer, "GLU variants", 2020)
#pragma once

#include <cstdint>

#include "model/elementary.h"
#include "qkv/model.h"

namespace qkv {

inline constexpr double kGeluSlope = 1.5957691216057308;  // 2 sqrt(2 / pi)
inline constexpr double kGeluCubic = 0.044715;

// gate [size] (swiglu only, else null), up [size] -> a [size]; a may be up.
template <class T>
void activation_forward(Activation kind, std::int64_t size, const T* gate, const T* up, T* a) {
  switch (kind) {
    case Activation::relu:
      // NaN stays NaN: it is not below 0.
      return for_elements(size, [=](std::int64_t i) { a[i] = up[i] < T{0} ? T{0} : up[i]; });
    case Activation::relu2:
      return for_elements(size, [=](std::int64_t i) {
        const T r = up[i] < T{0} ? T{0} : up[i];
        a[i] = r * r;
      });
    case Activation::gelu:
      return for_elements(size, [=](std::int64_t i) {
        const T u = up[i];
        a[i] = u * sigmoid(static_cast<T>(kGeluSlope) * (u + static_cast<T>(kGeluCubic) * u * u * u));
      });
    case Activation::swiglu:
      return for_elements(size, [=](std::int64_t i) { a[i] = gate[i] * sigmoid(gate[i]) * up[i]; });
  }
}

// forward: a = activation(gate, up)
//   relu    du = da where u > 0                relu2   du = 2 max(u, 0) da
//   gelu    s = sigmoid(z), z = slope (u + cubic u^3):   du = da (s + u s (1 - s) slope (1 + 3 cubic u^2))
//   swiglu  s = sigmoid(g):   dg = da u s (1 + g (1 - s)),   du = da g s
// gate, up, da [size] -> dgate [size] (swiglu only, else null), dup [size]; dup may be da. For relu, up may be a.
template <class T>
void activation_backward(Activation kind, std::int64_t size, const T* gate, const T* up, const T* da, T* dgate,
                         T* dup) {
  switch (kind) {
    case Activation::relu:
      return for_elements(size, [=](std::int64_t i) { dup[i] = up[i] > T{0} ? da[i] : T{0}; });
    case Activation::relu2:
      return for_elements(size, [=](std::int64_t i) { dup[i] = up[i] > T{0} ? T{2} * up[i] * da[i] : T{0}; });
    case Activation::gelu:
      return for_elements(size, [=](std::int64_t i) {
        constexpr T kSlope = static_cast<T>(kGeluSlope), kCubic = static_cast<T>(kGeluCubic);
        const T u = up[i], s = sigmoid(kSlope * (u + kCubic * u * u * u));
        dup[i] = da[i] * (s + u * s * (T{1} - s) * kSlope * (T{1} + T{3} * kCubic * u * u));
      });
    case Activation::swiglu:
      return for_elements(size, [=](std::int64_t i) {
        const T g = gate[i], u = up[i], d = da[i], s = sigmoid(g);
        dgate[i] = d * u * s * (T{1} + g * (T{1} - s));
        dup[i] = d * g * s;
      });
  }
}

}  // namespace qkv
