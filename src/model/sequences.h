// SPDX-License-Identifier: Apache-2.0
// How the rows of a layer's input are cut into sequences.
//
// A parameter's gradient is a sum over rows. It is made of one leaf a sequence, rows in order, and the leaves are added
// to the gradient in the order of the sequences, so that four sequences at once give the bits of four times one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/parallel.h"

namespace qkv {

struct Sequences {
  std::int64_t batch, ctx;
  std::span<const std::int64_t> lengths{};  // [batch] or empty: rows past a sequence's length are padding

  std::int64_t rows() const noexcept { return batch * ctx; }
  std::int64_t length(std::int64_t b) const noexcept {
    return lengths.empty() ? ctx : lengths[static_cast<std::size_t>(b)];
  }
  // At most `count` of the sequences, from `first` on.
  Sequences part(std::int64_t first, std::int64_t count) const noexcept {
    count = std::min(count, batch - first);
    const auto at = static_cast<std::size_t>(first), size = static_cast<std::size_t>(count);
    return {count, ctx, lengths.empty() ? lengths : lengths.subspan(at, size)};
  }
};

// Rows that one task handles: enough elements to be worth a task.
inline std::int64_t rows_per_task(std::int64_t row_size) noexcept {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(1, row_size));
}

}  // namespace qkv
