// SPDX-License-Identifier: Apache-2.0
// Elementary functions and sums for loops over rows, written so that compilers vectorise them and every machine gives
// the same bits: no fused operations, a fixed order of additions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/parallel.h"

namespace qkv {

// f(0) ... f(size - 1), where f(i) may read and write element i of arrays and no other, so that a result may stand
// where an argument did.
template <class F>
inline void for_elements_of_row(std::int64_t size, const F& f) noexcept {
#pragma omp simd
  for (std::int64_t i = 0; i < size; ++i) f(i);
}

// The same, on all threads.
template <class F>
void for_elements(std::int64_t size, const F& f) {
  parallel_ranges(size, 8192, [&f](std::int64_t begin, std::int64_t end) {
#pragma omp simd
    for (std::int64_t i = begin; i < end; ++i) f(i);
  });
}

// e^x for x up to 88; f32 within 2 units in the last place. Below -87.33 the result is 0; NaN is NaN.
inline float exponential(float x) noexcept {
  constexpr float kLog2E = 1.44269504f, kLn2High = 0.693145752f, kLn2Low = 1.42860677e-6f;
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer held in the low bits
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
  const std::uint32_t exponent = (std::bit_cast<std::uint32_t>(shifted) - 0x4b400000u + 127u) << 23;
  // Chosen by a mask, and by one comparison alone: with more, compilers make branches and do not vectorise.
  const std::uint32_t kept = x < -87.33f ? 0u : ~0u;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p * std::bit_cast<float>(exponent)) & kept);
}
inline double exponential(double x) noexcept { return std::exp(x); }

// 1 / (1 + e^-x), from e^-|x| so that nothing overflows.
template <class T>
inline T sigmoid(T x) noexcept {
  const T e = exponential(-std::abs(x));
  return (x < T{0} ? e : T{1}) / (T{1} + e);
}

// f(0) + ... + f(n - 1), in 16 interleaved sums that are added pairwise at the end.
template <class T, class F>
inline T lane_sum(std::int64_t n, const F& f) noexcept {
  constexpr int kLanes = 16;
  T sums[kLanes] = {};
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += f(j + lane);
  for (int lane = 0; lane < kLanes - 1; ++lane)
    if (j + lane < n) sums[lane] += f(j + lane);
  for (int half = kLanes / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; ++lane) sums[lane] += sums[lane + half];
  return sums[0];
}

// The largest of x[0] ... x[n - 1], -inf if there is none; NaN is passed over.
template <class T>
inline T lane_max(std::int64_t n, const T* x) noexcept {
  constexpr int kLanes = 16;
  T best[kLanes];
  for (T& b : best) b = -std::numeric_limits<T>::infinity();
  std::int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) best[lane] = x[j + lane] > best[lane] ? x[j + lane] : best[lane];
  for (int lane = 0; lane < kLanes - 1; ++lane)
    if (j + lane < n) best[lane] = x[j + lane] > best[lane] ? x[j + lane] : best[lane];
  T result = best[0];
  for (const T b : best) result = b > result ? b : result;
  return result;
}

}  // namespace qkv
