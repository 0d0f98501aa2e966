// SPDX-License-Identifier: Apache-2.0
#include "core/finite.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <iterator>
#include <stdexcept>
#include <string>

#include "core/parallel.h"

namespace qkv {
namespace {

// By the bits: the exponent of NaN and infinity is all ones. Without a branch in the loop, so that it is vectorised.
template <class T, class Bits>
std::int64_t first_with_exponent(const T* values, std::int64_t count, Bits exponent) noexcept {
  const auto special = [=](std::int64_t i) { return (std::bit_cast<Bits>(values[i]) & exponent) == exponent; };
  constexpr std::int64_t kAtOnce = 1024;
  for (std::int64_t begin = 0; begin < count; begin += kAtOnce) {
    const std::int64_t end = std::min(count, begin + kAtOnce);
    Bits found = 0;
    for (std::int64_t i = begin; i < end; ++i) found |= special(i) ? Bits{1} : Bits{0};
    if (found == 0) continue;
    for (std::int64_t i = begin; i < end; ++i)
      if (special(i)) return i;
  }
  return -1;
}

std::int64_t first_in(DType dtype, const void* data, std::int64_t begin, std::int64_t count) {
  switch (dtype) {
    case DType::f32:
      return first_with_exponent<float, std::uint32_t>(static_cast<const float*>(data) + begin, count, 0x7f800000u);
    case DType::f64:
      return first_with_exponent<double, std::uint64_t>(static_cast<const double*>(data) + begin, count,
                                                        0x7ff0000000000000u);
    case DType::bf16:
      return first_with_exponent<bf16, std::uint16_t>(static_cast<const bf16*>(data) + begin, count, 0x7f80u);
    case DType::f16:
      return first_with_exponent<f16, std::uint16_t>(static_cast<const f16*>(data) + begin, count, 0x7c00u);
    default:
      throw std::invalid_argument("[finite] expected f32, f64, bf16 or f16; found " + std::string(dtype_name(dtype)));
  }
}

}  // namespace

std::int64_t first_non_finite(std::span<const float> values) noexcept {
  return first_with_exponent<float, std::uint32_t>(values.data(), std::ssize(values), 0x7f800000u);
}

std::int64_t first_non_finite(const ConstView& values) {
  constexpr std::int64_t kGrain = std::int64_t{1} << 18;
  const std::int64_t count = element_count(values.shape);
  std::atomic<std::int64_t> first = count;
  parallel_ranges(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t found = first_in(values.dtype, values.data, begin, end - begin);
    if (found < 0) return;
    std::int64_t lowest = first;
    while (begin + found < lowest && !first.compare_exchange_weak(lowest, begin + found)) {
    }
  });
  return first < count ? first.load() : -1;
}

}  // namespace qkv
