// SPDX-License-Identifier: Apache-2.0
// How much of a batch is worked on at a time, which bounds the memory of a pass. No result depends on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/layer_weights.h"
#include "qkv/model_config.h"

namespace qkv {

inline constexpr std::int64_t kTokensPerPass = 2048;  // about

inline std::int64_t sequences_per_pass(std::int64_t ctx) {
  return std::max<std::int64_t>(1, kTokensPerPass / std::max<std::int64_t>(1, ctx));
}

// Rows whose logits exist at once: a number that depends on the vocabulary alone.
inline std::int64_t rows_of_logits(const ModelConfig& c) {
  constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 25, kFewest = 256, kMost = 1024;
  std::int64_t rows = kMost;
  while (rows > kFewest && rows * padded_vocab(c) > kLogitsAtOnce) rows /= 2;
  return rows;
}

}  // namespace qkv
