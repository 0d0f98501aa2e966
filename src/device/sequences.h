// SPDX-License-Identifier: Apache-2.0
// How the current rows are divided into sequences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace qkv {

struct Sequences {
  std::int64_t batch, ctx;
  std::span<const std::int64_t> lengths{};  // [batch] or empty: rows past a sequence's length are padding

  std::int64_t rows() const noexcept { return batch * ctx; }
  std::int64_t length(std::int64_t b) const noexcept {
    return lengths.empty() ? ctx : lengths[static_cast<std::size_t>(b)];
  }
  // At most `count` sequences, starting at `first`.
  Sequences part(std::int64_t first, std::int64_t count) const noexcept {
    count = std::min(count, batch - first);
    const auto at = static_cast<std::size_t>(first), size = static_cast<std::size_t>(count);
    return {count, ctx, lengths.empty() ? lengths : lengths.subspan(at, size)};
  }
};

}  // namespace qkv
