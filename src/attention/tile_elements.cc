// SPDX-License-Identifier: Apache-2.0
#include "attention/tile_elements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float_types.h"
#include "kernels/kernels.h"

namespace qkv {
namespace {

// A finite number stays finite.
float to_float(double x) noexcept {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::isfinite(x) ? std::clamp(x, -kMost, kMost) : x);
}
float to_float(float x) noexcept { return x; }

template <class T>
void widen_strided(const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n, float* to) noexcept {
  const T* from = static_cast<const T*>(base) + offset;
  for (std::int64_t i = 0; i < n; ++i) to[i] = to_float(widen(from[i * stride]));
}

template <class T>
void narrow_strided(void* base, std::int64_t offset, std::int64_t stride, std::int64_t n, const float* from) noexcept {
  T* to = static_cast<T*>(base) + offset;
  for (std::int64_t i = 0; i < n; ++i) to[i * stride] = narrow<T>(from[i]);
}

}  // namespace

void widen_elements(DType dtype, const void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                    float* to) noexcept {
  if (dtype == DType::bf16 && stride == 1)
    kernels().widen_bf16(static_cast<const std::uint16_t*>(base) + offset, n, to);
  else if (dtype == DType::f16 && stride == 1)
    kernels().widen_f16(static_cast<const std::uint16_t*>(base) + offset, n, to);
  else if (dtype == DType::q8_0)
    kernels().widen_q8_0(static_cast<const std::byte*>(base) + row_bytes(dtype, offset), n, to);
  else if (dtype == DType::f32)
    widen_strided<float>(base, offset, stride, n, to);
  else if (dtype == DType::bf16)
    widen_strided<bf16>(base, offset, stride, n, to);
  else if (dtype == DType::f16)
    widen_strided<f16>(base, offset, stride, n, to);
  else
    widen_strided<double>(base, offset, stride, n, to);
}

void narrow_elements(DType dtype, void* base, std::int64_t offset, std::int64_t stride, std::int64_t n,
                     const float* from) noexcept {
  if (dtype == DType::bf16 && stride == 1)
    kernels().narrow_bf16(from, n, static_cast<std::uint16_t*>(base) + offset);
  else if (dtype == DType::f32)
    narrow_strided<float>(base, offset, stride, n, from);
  else if (dtype == DType::bf16)
    narrow_strided<bf16>(base, offset, stride, n, from);
  else if (dtype == DType::f16)
    narrow_strided<f16>(base, offset, stride, n, from);
  else
    narrow_strided<double>(base, offset, stride, n, from);
}

}  // namespace qkv
