// SPDX-License-Identifier: Apache-2.0
// Chunk sizes that bound the memory of a pass. Results do not depend on them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "model/layer_weights.h"
#include "qkv/model_config.h"

namespace qkv {

inline constexpr std::int64_t kTokensPerPass = 2048;  // approximate

inline std::int64_t sequences_per_pass(std::int64_t ctx) {
  return std::max<std::int64_t>(1, kTokensPerPass / std::max<std::int64_t>(1, ctx));
}

// Rows whose logits exist at once; depends only on the vocabulary size.
inline std::int64_t rows_of_logits(const ModelConfig& c) {
  constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 25, kFewest = 256, kMax = 1024;
  std::int64_t rows = kMax;
  while (rows > kFewest && rows * padded_vocab(c) > kLogitsAtOnce) rows /= 2;
  return rows;
}

}  // namespace qkv
