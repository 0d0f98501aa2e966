// SPDX-License-Identifier: Apache-2.0
#include "attention/elements.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/block_types.h"
#include "core/float_types.h"
#include "kernels/kernels.h"

namespace qkv {
namespace {

float to_float(double x) noexcept { return finite_to_f32(x); }
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

float finite_to_f32(double x) noexcept {
  constexpr float kMax = std::numeric_limits<float>::max();
  if (std::isfinite(x) && std::abs(x) > double{kMax}) return x < 0 ? -kMax : kMax;
  return static_cast<float>(x);
}

template <class T>
T load_element(const ConstView& view, std::int64_t offset) noexcept {
  switch (view.dtype) {
    case DType::f32:
      return static_cast<T>(static_cast<const float*>(view.data)[offset]);
    case DType::f64: {
      const double x = static_cast<const double*>(view.data)[offset];
      if constexpr (sizeof(T) == sizeof(double)) return x;
      return static_cast<T>(finite_to_f32(x));
    }
    case DType::bf16:
      return static_cast<T>(widen(static_cast<const bf16*>(view.data)[offset]));
    case DType::q8_0:
      return static_cast<T>(q8_0_element(static_cast<const std::byte*>(view.data), offset));
    default:
      return static_cast<T>(widen(static_cast<const f16*>(view.data)[offset]));
  }
}
template float load_element<float>(const ConstView&, std::int64_t) noexcept;
template double load_element<double>(const ConstView&, std::int64_t) noexcept;

template <class T>
void store_element(const View& view, std::int64_t offset, T value) noexcept {
  switch (view.dtype) {
    case DType::f64:
      static_cast<double*>(view.data)[offset] = value;
      break;
    case DType::bf16:
      static_cast<bf16*>(view.data)[offset] = narrow<bf16>(static_cast<float>(value));
      break;
    case DType::f16:
      static_cast<f16*>(view.data)[offset] = narrow<f16>(static_cast<float>(value));
      break;
    default:
      static_cast<float*>(view.data)[offset] = static_cast<float>(value);
      break;
  }
}

template void store_element(const View&, std::int64_t, float) noexcept;
template void store_element(const View&, std::int64_t, double) noexcept;

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
