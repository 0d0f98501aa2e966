// SPDX-License-Identifier: Apache-2.0
// How the CPU operations divide their work and access views by type.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/parallel.h"
#include "device/sum_steps.h"
#include "qkv/tensor.h"

namespace qkv {

// Elements per task.
inline constexpr std::int64_t kElementsPerTask = 16384;

inline std::int64_t rows_per_task(std::int64_t row_size) noexcept {
  return std::max<std::int64_t>(1, kElementsPerTask / std::max<std::int64_t>(1, row_size));
}

// Calls f(S{}) with the element type of a view, float or bf16.
template <class F>
decltype(auto) with_operand(DType type, const F& f) {
  return type == DType::bf16 ? f(bf16{}) : f(float{});
}

template <class T>
const T* data_of(const ConstView& x) noexcept {
  return static_cast<const T*>(x.data);
}
template <class T>
T* data_of(const View& x) noexcept {
  return static_cast<T*>(x.data);
}
inline std::int64_t rows_of(const ConstView& x) noexcept { return x.shape[0]; }
inline std::int64_t width_of(const ConstView& x) noexcept { return x.shape[1]; }
inline std::int64_t size_of(const ConstView& x) noexcept {
  std::int64_t size = 1;
  for (const std::int64_t n : x.shape) size *= n;
  return size;
}

// A gradient [size] that is a sum over rows: leaf_of(sequence, first, count, leaf) adds elements first ... first +
// count of that sequence's leaf to leaf [count], which is initially 0.
template <class T, class Leaf>
void add_leaves(std::span<const SumStep> steps, const SlotPointers& slots, std::int64_t size, const Leaf& leaf_of) {
  constexpr std::int64_t kColumns = 64;
  parallel_ranges(size, kColumns, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t count = last - first;
    T own[kSumSlots][kColumns];  // for slots without memory
    const auto slot = [&](int i) {
      T* given = static_cast<T*>(slots[static_cast<std::size_t>(i)]);
      return given ? given + first : own[i];  // [count]
    };
    for (const SumStep& step : steps) {
      T* to = slot(step.to);
      if (step.from >= 0) {
        const T* from = slot(step.from);
        for (std::int64_t j = 0; j < count; ++j) to[j] += from[j];
        continue;
      }
      T leaf[kColumns] = {};
      leaf_of(step.sequence, first, count, leaf);
      for (std::int64_t j = 0; j < count; ++j) to[j] = step.fresh ? leaf[j] : to[j] + leaf[j];
    }
  });
}

}  // namespace qkv
