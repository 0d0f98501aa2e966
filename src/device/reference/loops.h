// SPDX-License-Identifier: Apache-2.0
// Loops shared by the reference operations.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/sequences.h"
#include "device/sum_steps.h"
#include "qkv/tensor.h"

namespace qkv::reference {

// Row i of a view [rows, width].
inline const double* row(const ConstView& x, std::int64_t i) {
  return static_cast<const double*>(x.data) + i * x.strides[0];
}
inline double* row(const View& x, std::int64_t i) { return static_cast<double*>(x.data) + i * x.strides[0]; }
// Element i of a dense vector, or `otherwise` if it is empty.
inline double at(const ConstView& x, std::int64_t i, double otherwise) {
  return x ? static_cast<const double*>(x.data)[i] : otherwise;
}
inline std::int64_t size_of(const ConstView& x) {
  std::int64_t size = 1;
  for (const std::int64_t n : x.shape) size *= n;
  return size;
}

// A gradient [size]: add(row, leaf) adds a row's contribution to the leaf of its sequence.
template <class Add>
void sum_rows(const Sequences& s, std::span<const SumStep> steps, const SlotPointers& slots, std::int64_t size,
              const Add& add) {
  if (!slots[0]) return;
  std::vector<std::vector<double>> own(kSumSlots);  // for slots past 0 without memory
  const auto slot = [&](int i) -> double* {
    if (void* given = slots[static_cast<std::size_t>(i)]) return static_cast<double*>(given);
    std::vector<double>& memory = own[static_cast<std::size_t>(i)];
    memory.resize(static_cast<std::size_t>(size));
    return memory.data();
  };
  std::vector<double> leaf(static_cast<std::size_t>(size));
  for (const SumStep& step : steps) {
    double* to = slot(step.to);
    if (step.from >= 0) {
      const double* from = slot(step.from);
      for (std::int64_t j = 0; j < size; ++j) to[j] += from[j];
      continue;
    }
    leaf.assign(leaf.size(), 0);
    for (std::int64_t t = 0; t < s.length(step.sequence); ++t) add(step.sequence * s.ctx + t, leaf.data());
    for (std::int64_t j = 0; j < size; ++j)
      to[j] = step.fresh ? leaf[static_cast<std::size_t>(j)] : to[j] + leaf[static_cast<std::size_t>(j)];
  }
}

}  // namespace qkv::reference
