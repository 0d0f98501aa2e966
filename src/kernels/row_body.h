// SPDX-License-Identifier: Apache-2.0
// The kernels of row_kernels.h as plain loops for compiler auto-vectorization, included by one file per instruction
// set. Everything is in an anonymous namespace and no inline code of the standard library is used: a function compiled
// for one instruction set must never be linked in place of another's. All sets give the same bits, so nothing here may
// be fused.
#pragma once

#include <stdint.h>

#include "core/float_types.h"
#include "kernels/row_kernels.h"

namespace {

#define QKV_ROW static inline __attribute__((always_inline))

using qkv::bf16;
using qkv::RowActivation;
using qkv::RowNorm;
using qkv::widen;

template <class S>
QKV_ROW void put(S& to, float x) {
  to = qkv::narrow<S>(x);
}

// f(0) ... f(n - 1), where f(i) may read and write only element i of arrays.
template <class F>
QKV_ROW void each(int64_t n, const F& f) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) f(i);
}

constexpr int kLanes = 16;

// f(0) + ... + f(n - 1), in 16 interleaved sums that are added pairwise at the end.
template <class F>
QKV_ROW float lane_sum(int64_t n, const F& f) {
  float sums[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += f(j + lane);
  }
  for (int lane = 0; j + lane < n; ++lane) sums[lane] += f(j + lane);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// The largest of x[0] ... x[n - 1], -inf if empty; NaN is ignored.
QKV_ROW float lane_max(int64_t n, const float* x) {
  float best[kLanes];
  for (float& b : best) b = -__builtin_inff();
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) best[lane] = x[j + lane] > best[lane] ? x[j + lane] : best[lane];
  }
  for (int lane = 0; j + lane < n; ++lane) best[lane] = x[j + lane] > best[lane] ? x[j + lane] : best[lane];
  float largest = best[0];
  for (const float b : best) largest = b > largest ? b : largest;
  return largest;
}

// e^x for x up to 88, within 2 ulp. Below -87.33 the result is 0; NaN is NaN.
QKV_ROW float exponential(float x) {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * kLog2E + kRounder;
  const float whole = shifted - kRounder;
  const float r = (x - whole * kLn2High) - whole * kLn2Low;  // |r| <= ln(2) / 2
  float p = 1.98756915e-4f;
  p = p * r + 1.39819995e-3f;
  p = p * r + 8.33345205e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666657e-1f;
  p = p * r + 5.00000000e-1f;
  p = (p * r) * r + r + 1.0f;
  const uint32_t exponent = (__builtin_bit_cast(uint32_t, shifted) - 0x4b400000u + 127u) << 23;
  const uint32_t kept = x < -87.33f ? 0u : ~0u;
  return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, p * __builtin_bit_cast(float, exponent)) & kept);
}

// 1 / (1 + e^-x), computed from e^-|x| to avoid overflow.
QKV_ROW float sigmoid(float x) {
  const float e = exponential(-__builtin_fabsf(x));
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

// --- norms

template <class S>
QKV_ROW void norm_row(RowNorm kind, float eps, int64_t d, const float* x, const float* gain, const float* bias, S* y,
                      float* statistics) {
  const float size = static_cast<float>(d);
  const float mean = kind == RowNorm::layernorm ? lane_sum(d, [=](int64_t j) { return x[j]; }) / size : 0.0f;
  const float variance = lane_sum(d, [=](int64_t j) { return (x[j] - mean) * (x[j] - mean); }) / size;
  const float inverse = 1.0f / __builtin_sqrtf(variance + eps);
  statistics[0] = mean;
  statistics[1] = inverse;
  if (gain && bias)
    each(d, [=](int64_t j) { put(y[j], (x[j] - mean) * inverse * gain[j] + bias[j]); });
  else if (gain)
    each(d, [=](int64_t j) { put(y[j], (x[j] - mean) * inverse * gain[j]); });
  else if (bias)
    each(d, [=](int64_t j) { put(y[j], (x[j] - mean) * inverse + bias[j]); });
  else
    each(d, [=](int64_t j) { put(y[j], (x[j] - mean) * inverse); });
}

template <class S>
void norm_forward(RowNorm kind, float eps, int64_t rows, int64_t d, const float* x, const float* gain,
                  const float* bias, S* y, float* statistics) noexcept {
  for (int64_t i = 0; i < rows; ++i) norm_row(kind, eps, d, x + i * d, gain, bias, y + i * d, statistics + 2 * i);
}

template <class S>
void residual_norm_forward(RowNorm kind, float eps, int64_t rows, int64_t d, const float* x, const float* delta,
                           const float* gain, const float* bias, float* middle, S* y, float* statistics) noexcept {
  for (int64_t i = 0; i < rows; ++i) {
    const float *xi = x + i * d, *di = delta + i * d;  // [d]
    float* mi = middle + i * d;                        // [d]
    each(d, [=](int64_t j) { mi[j] = xi[j] + di[j]; });
    norm_row(kind, eps, d, mi, gain, bias, y + i * d, statistics + 2 * i);
  }
}

// dxhat(j): the gradient of xhat. dx (+)= inverse * (dxhat - shift - xhat * along)
template <class Dxhat>
QKV_ROW void norm_backward_row(RowNorm kind, int64_t d, const float* x, float mean, float inverse, const Dxhat& dxhat,
                               bool add, float* dx) {
  const float size = static_cast<float>(d);
  const float along = lane_sum(d, [=](int64_t j) { return dxhat(j) * ((x[j] - mean) * inverse); }) / size;
  const float shift = kind == RowNorm::layernorm ? lane_sum(d, dxhat) / size : 0.0f;
  if (add)
    each(d, [=](int64_t j) { dx[j] += inverse * (dxhat(j) - shift - (x[j] - mean) * inverse * along); });
  else
    each(d, [=](int64_t j) { dx[j] = inverse * (dxhat(j) - shift - (x[j] - mean) * inverse * along); });
}

template <class S>
void norm_backward_input(RowNorm kind, int64_t rows, int64_t d, const float* x, const float* gain,
                         const float* statistics, const S* dy, bool add, float* dx) noexcept {
  for (int64_t i = 0; i < rows; ++i) {
    const S* dyi = dy + i * d;  // [d]
    const float mean = statistics[2 * i], inverse = statistics[2 * i + 1];
    if (gain)
      norm_backward_row(
          kind, d, x + i * d, mean, inverse, [=](int64_t j) { return widen(dyi[j]) * gain[j]; }, add, dx + i * d);
    else
      norm_backward_row(
          kind, d, x + i * d, mean, inverse, [=](int64_t j) { return widen(dyi[j]); }, add, dx + i * d);
  }
}

template <class S>
void row_sums(int64_t rows, int64_t count, const S* x, int64_t ldx, float* sums) noexcept {
  for (int64_t i = 0; i < rows; ++i) {
    const S* xi = x + i * ldx;  // [count]
    each(count, [=](int64_t j) { sums[j] += widen(xi[j]); });
  }
}

template <class S>
void norm_parameter_sums(int64_t rows, int64_t d, int64_t first, int64_t count, const float* x, const float* statistics,
                         const S* dy, float* gain_sums, float* bias_sums) noexcept {
  if (bias_sums) row_sums(rows, count, dy + first, d, bias_sums);
  if (!gain_sums) return;
  for (int64_t i = 0; i < rows; ++i) {
    const float* xi = x + i * d + first;  // [count]
    const S* dyi = dy + i * d + first;    // [count]
    const float mean = statistics[2 * i], inverse = statistics[2 * i + 1];
    each(count, [=](int64_t j) { gain_sums[j] += widen(dyi[j]) * ((xi[j] - mean) * inverse); });
  }
}

// --- activations; NaN propagates, as it is not below 0

constexpr float kGeluSlope = 1.5957691216057308f;  // 2 sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

// erf, error below 1.5e-7 (Abramowitz and Stegun, 7.1.26).
QKV_ROW float error_function(float x) {
  const float size = x < 0.0f ? -x : x, t = 1.0f / (1.0f + 0.3275911f * size);
  const float sum =
      t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
  const float y = 1.0f - sum * exponential(-(size * size));
  return x < 0.0f ? -y : y;
}

// f(u) and its derivative for each activation.
struct Relu {
  QKV_ROW float value(float u) { return u < 0.0f ? 0.0f : u; }
  QKV_ROW float slope(float u) { return u > 0.0f ? 1.0f : 0.0f; }
};
struct Relu2 {
  QKV_ROW float value(float u) {
    const float r = u < 0.0f ? 0.0f : u;
    return r * r;
  }
  QKV_ROW float slope(float u) { return u > 0.0f ? 2.0f * u : 0.0f; }
};
struct Gelu {
  QKV_ROW float value(float u) { return u * sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u)); }
  QKV_ROW float slope(float u) {
    const float s = sigmoid(kGeluSlope * (u + kGeluCubic * u * u * u));
    return s + u * s * (1.0f - s) * kGeluSlope * (1.0f + 3.0f * kGeluCubic * u * u);
  }
};
struct GeluErf {
  QKV_ROW float value(float u) { return u * (0.5f * (1.0f + error_function(u * 0.70710678f))); }
  QKV_ROW float slope(float u) {
    return 0.5f * (1.0f + error_function(u * 0.70710678f)) + u * (0.39894228f * exponential(-0.5f * (u * u)));
  }
};
struct Silu {
  QKV_ROW float value(float u) { return u * sigmoid(u); }
  QKV_ROW float slope(float u) {
    const float s = sigmoid(u);
    return s * (1.0f + u * (1.0f - s));
  }
};

// Calls f with the functions of `kind`.
template <class F>
QKV_ROW void with_activation(RowActivation kind, const F& f) {
  switch (kind) {
    case RowActivation::relu:
      return f(Relu{});
    case RowActivation::relu2:
      return f(Relu2{});
    case RowActivation::gelu:
      return f(Gelu{});
    case RowActivation::silu:
      return f(Silu{});
    case RowActivation::gelu_erf:
      return f(GeluErf{});
  }
}

template <class S>
void activation_forward(RowActivation kind, int64_t size, const S* gate, const S* up, S* a) noexcept {
  with_activation(kind, [=](auto f) {
    if (gate) return each(size, [=](int64_t i) { put(a[i], f.value(widen(gate[i])) * widen(up[i])); });
    each(size, [=](int64_t i) { put(a[i], f.value(widen(up[i]))); });
  });
}

template <class S>
void activation_backward(RowActivation kind, int64_t size, const S* gate, const S* up, const S* da, S* dgate,
                         S* dup) noexcept {
  if (kind == RowActivation::silu && gate)  // one sigmoid for both
    return each(size, [=](int64_t i) {
      const float g = widen(gate[i]), u = widen(up[i]), d = widen(da[i]), s = sigmoid(g);
      put(dgate[i], d * u * s * (1.0f + g * (1.0f - s)));
      put(dup[i], d * g * s);
    });
  if (kind == RowActivation::relu && !gate)  // drops non-finite gradients where u <= 0
    return each(size, [=](int64_t i) {
      const float slope = widen(da[i]);
      put(dup[i], widen(up[i]) > 0.0f ? slope : 0.0f);
    });
  if (kind == RowActivation::relu2 && !gate)
    return each(size, [=](int64_t i) {
      const float u = widen(up[i]), slope = 2.0f * u * widen(da[i]);
      put(dup[i], u > 0.0f ? slope : 0.0f);
    });
  with_activation(kind, [=](auto f) {
    if (gate)
      return each(size, [=](int64_t i) {
        const float g = widen(gate[i]), u = widen(up[i]), d = widen(da[i]);
        put(dgate[i], d * u * f.slope(g));
        put(dup[i], d * f.value(g));
      });
    each(size, [=](int64_t i) { put(dup[i], widen(da[i]) * f.slope(widen(up[i]))); });
  });
}

// --- loss

template <class S>
double cross_entropy(int64_t vocab, int64_t padded, float* logits, int64_t target, float scale, S* dlogits) noexcept {
  if (target < 0) {
    if (dlogits) each(padded, [=](int64_t j) { put(dlogits[j], 0.0f); });
    return 0;
  }
  const float chosen = logits[target], largest = lane_max(vocab, logits);
  const float sum = dlogits ? lane_sum(vocab, [=](int64_t j) { return logits[j] = exponential(logits[j] - largest); })
                            : lane_sum(vocab, [=](int64_t j) { return exponential(logits[j] - largest); });
  if (dlogits) {
    const float factor = scale / sum, at_target = logits[target] * factor - scale;
    each(vocab, [=](int64_t j) { put(dlogits[j], logits[j] * factor); });
    put(dlogits[target], at_target);
    for (int64_t j = vocab; j < padded; ++j) put(dlogits[j], 0.0f);
  }
  return __builtin_log(static_cast<double>(sum)) + (static_cast<double>(largest) - static_cast<double>(chosen));
}

// --- rows of heads, arrays

template <class S>
void rotary(int64_t rows, int64_t heads, int64_t head_dim, const float* cosines, const float* sines, bool back, S* x,
            int64_t ldx) noexcept {
  const int64_t half = head_dim / 2;
  const float turn = back ? -1.0f : 1.0f;
  for (int64_t i = 0; i < rows; ++i) {
    const float* cosine = cosines + i * half;  // [half]
    const float* sine = sines + i * half;      // [half]
    for (int64_t h = 0; h < heads; ++h) {
      S* low = x + i * ldx + h * head_dim;  // [half]
      S* high = low + half;                 // [half]
      each(half, [=](int64_t j) {
        const float a = widen(low[j]), b = widen(high[j]), sn = sine[j] * turn;
        put(low[j], a * cosine[j] - b * sn);
        put(high[j], b * cosine[j] + a * sn);
      });
    }
  }
}

template <class S>
void from_f32(int64_t size, const float* x, S* y) noexcept {
  each(size, [=](int64_t i) { put(y[i], x[i]); });
}

template <class S>
void to_f32(int64_t size, const S* x, float* y) noexcept {
  each(size, [=](int64_t i) { y[i] = widen(x[i]); });
}

template <class S>
void accumulate(int64_t size, const S* x, float* y) noexcept {
  each(size, [=](int64_t i) { y[i] += widen(x[i]); });
}

template <class S>
void add(int64_t size, const S* a, const S* b, S* y) noexcept {
  each(size, [=](int64_t i) { put(y[i], widen(a[i]) + widen(b[i])); });
}

// --- optimizer

double sum_of_squares(int64_t size, const float* x) noexcept {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
#pragma omp simd
    for (int lane = 0; lane < kLanes; ++lane) {
      const double value = static_cast<double>(x[i + lane]);
      lanes[lane] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  for (; i < size; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void adamw_update(int64_t size, const qkv::AdamWFactors& factors, float* p, float* m, float* v,
                  const float* gradient) noexcept {
  const qkv::AdamWFactors f = factors;
  each(size, [=](int64_t i) {
    const float g = gradient[i] * f.gradient_scale;
    const float first = f.beta1 * m[i] + f.one_minus_beta1 * g;
    const float second = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
    m[i] = first;
    v[i] = second;
    p[i] = f.keep * p[i] - f.step_size * (first / (__builtin_sqrtf(second) * f.inverse_root_bias2 + f.eps));
  });
}

}  // namespace

#include "kernels/dropout_body.h"

namespace {

template <class S>
constexpr qkv::StoredRowKernels<S> stored_row_kernels() {
  return {.norm_forward = norm_forward<S>,
          .residual_norm_forward = residual_norm_forward<S>,
          .norm_backward_input = norm_backward_input<S>,
          .norm_parameter_sums = norm_parameter_sums<S>,
          .row_sums = row_sums<S>,
          .activation_forward = activation_forward<S>,
          .activation_backward = activation_backward<S>,
          .cross_entropy = cross_entropy<S>,
          .rotary = rotary<S>,
          .from_f32 = from_f32<S>,
          .to_f32 = to_f32<S>,
          .accumulate = accumulate<S>,
          .add = add<S>,
          .dropout = dropout<S>};
}

constexpr qkv::RowKernels row_kernels_named(std::string_view name) {
  return {.name = name,
          .f32 = stored_row_kernels<float>(),
          .half = stored_row_kernels<bf16>(),
          .sum_of_squares = sum_of_squares,
          .adamw_update = adamw_update,
          .drop_pairs = drop_pairs,
          .drop_bf16_pairs = drop_bf16_pairs};
}

}  // namespace
