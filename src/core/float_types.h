// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the two-byte storage types, for use in loops. Round to nearest even; NaN stays NaN. All
// are always inlined and use nothing from the standard library, so that kernels compiled for one instruction set may
// use them: there is no out-of-line copy that the linker could substitute. Those used in kernel loops are branch-free.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"

#define QKV_CONVERT inline __attribute__((always_inline))

namespace qkv {

QKV_CONVERT float widen(float x) noexcept { return x; }
QKV_CONVERT double widen(double x) noexcept { return x; }
QKV_CONVERT float widen(bf16 x) noexcept { return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16); }
QKV_CONVERT float widen(f16 x) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000u) << 16, magnitude = x.bits & 0x7fffu;
  // Interpreted as an f32 with a smaller exponent, then scaled up: exact for normal and subnormal numbers.
  const float scaled = __builtin_bit_cast(float, magnitude << 13) * 0x1p112f;
  const std::uint32_t finite = __builtin_bit_cast(std::uint32_t, scaled);
  const std::uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return __builtin_bit_cast(float, (magnitude >= 0x7c00u ? special : finite) | sign);
}

template <class T>
QKV_CONVERT T narrow(float x) noexcept {
  static_assert(is_floating(dtype_of<T>));
  if constexpr (dtype_of<T> == DType::bf16) {
    const auto u = __builtin_bit_cast(std::uint32_t, x);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16, quiet = (u >> 16) | 0x40u;
    return {static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded)};
  } else if constexpr (dtype_of<T> == DType::f16) {
    const auto u = __builtin_bit_cast(std::uint32_t, x);
    const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000u);
    const std::uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return {static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu))};
    if (magnitude >= 0x477ff000u) return {static_cast<std::uint16_t>(sign | 0x7c00u)};  // rounds to 65536 or more
    if (magnitude < 0x38800000u) {  // subnormal or zero: the addition aligns and rounds the bits
      const float aligned = __builtin_bit_cast(float, magnitude) + 0.5f;
      return {static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, aligned) - 0x3f000000u))};
    }
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return {static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
  } else {
    return x;
  }
}

}  // namespace qkv

#undef QKV_CONVERT
