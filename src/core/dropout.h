// SPDX-License-Identifier: Apache-2.0
// Counter-based dropout (Srivastava et al., 2014): whether an element is kept depends only on a seed and the element's
// indices, so any thread can compute it in any order, and a backward pass can recompute it.
//
// An element is dropped if its 32-bit random number is below threshold; others are multiplied by scale = 1 / (1 - p).
// The numbers are words of blocks of random.h:
//   element i of an array                   word i % 64 / 16 of block i / 64 * 16 + i % 16, stream 0
//   query i, key j of attention, plane n    word j % 4 of block i + 2^32 (j / 4), stream 2^32 + n
// (a plane is one head of one sequence). The array order lets 16 vector lanes generate 64 adjacent elements.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"

namespace qkv {

struct Dropout {
  std::uint64_t seed = 0;
  std::uint32_t threshold = 0;  // 0: nothing is dropped
  double scale = 1;

  Dropout() = default;
  // 0 <= p < 1
  Dropout(double p, std::uint64_t s)
      : seed(s),
        threshold(static_cast<std::uint32_t>(std::fmin(std::round(p * 0x1p32), 0x1p32 - 1))),
        scale(1 / (1 - p)) {}

  explicit operator bool() const noexcept { return threshold > 0; }

  bool keeps(std::uint64_t i) const noexcept {
    return Random(seed).block(i / 64 * 16 + i % 16)[i % 64 / 16] >= threshold;
  }
  bool keeps_pair(std::uint32_t plane, std::uint32_t query, std::uint32_t key) const noexcept {
    const Random random(seed, std::uint64_t{1} << 32 | plane);
    return random.block(std::uint64_t{key / 4} << 32 | query)[key % 4] >= threshold;
  }
};

// The seed for one place in a model at one step of a run; kind and layer below 2^16, step below 2^32.
inline std::uint64_t dropout_seed(std::uint64_t seed, std::uint64_t step, std::uint64_t layer,
                                  std::uint64_t kind) noexcept {
  constexpr std::uint64_t kStream = 0x64726f70;  // "drop"
  return Random(seed, kStream).bits(step << 32 | layer << 16 | kind);
}

}  // namespace qkv
