// SPDX-License-Identifier: Apache-2.0
// Which keys each query may attend to. This is the only implementation; every path uses it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "attention/elements.h"
#include "attention/problem.h"

namespace qkv {

struct IndexRange {
  std::int64_t begin, end;
  bool empty() const noexcept { return begin >= end; }
};

// The keys that query i of sequence b may attend to under lengths, causality and window: one contiguous range, empty
// for a query past its sequence's length. begin and end never decrease as i grows (as long as i is within the length).
inline IndexRange attendable_keys(const AttentionProblem& p, std::int64_t b, std::int64_t i) noexcept {
  const SequenceSpan& s = p.sequences[static_cast<std::size_t>(b)];
  if (i >= s.q_len) return {0, 0};
  const std::int64_t position = s.start + i;
  std::int64_t begin = 0, end = s.kv_len;
  if (p.causal) end = std::min(end, position + 1);
  if (p.window_right >= 0) end = std::min(end, position + p.window_right + 1);
  if (p.window_left >= 0) begin = std::max(begin, position - p.window_left);
  return {begin, std::max(begin, end)};
}

// The mask's element (b, h, i, j) as an additive bias: 0 or -inf for a bool mask; 0 without a mask.
template <class T>
T mask_bias(const AttentionProblem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) noexcept {
  if (!p.mask) return T{0};
  const Dims& s = p.mask.strides;
  const std::int64_t offset = b * s[0] + h * s[1] + i * s[2] + j * s[3];
  if (!p.boolean_mask) return load_element<T>(p.mask, offset);
  const bool allowed = static_cast<const unsigned char*>(p.mask.data)[offset] != 0;
  return allowed ? T{0} : -std::numeric_limits<T>::infinity();
}

// ALiBi: - slope * |j - position|.
template <class T>
T alibi_bias(const AttentionProblem& p, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) noexcept {
  if (p.slopes.empty()) return T{0};
  const std::int64_t position = p.sequences[static_cast<std::size_t>(b)].start + i;
  return -static_cast<T>(p.slopes[static_cast<std::size_t>(h)]) * static_cast<T>(std::abs(j - position));
}

}  // namespace qkv
