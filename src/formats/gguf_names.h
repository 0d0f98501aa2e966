// SPDX-License-Identifier: Apache-2.0
// Where a parameter stands in a GGUF file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/gguf_config.h"

namespace qkv {

// Some or all of the rows of a matrix (of the elements of a vector).
struct GgufPlace {
  std::string tensor;              // "blk.0.attn_q.weight"
  std::vector<std::int64_t> dims;  // what the tensor must have: [elements], or [elements of a row, rows]
  std::int64_t first = 0, count = 0;
  bool transposed = false;      // the rows are the parameter's columns
  std::int64_t head_dim = 0;    // not 0: row 2 i and 2 i + 1 of each head are rows i and i + head_dim / 2 of ours
  bool may_be_missing = false;  // a bias, which is then 0
};

// joined: q, k and v are one tensor, in this order.
GgufPlace gguf_place(GgufFamily family, const ModelConfig& config, const ParameterInfo& info, bool joined);

// Our row of a parameter for row j of the file, both counted from the first.
inline std::int64_t gguf_our_row(const GgufPlace& place, std::int64_t j) noexcept {
  if (place.head_dim == 0) return j;
  const std::int64_t within = j % place.head_dim;
  return j - within + within % 2 * (place.head_dim / 2) + within / 2;
}

// The other way.
inline std::int64_t gguf_file_row(const GgufPlace& place, std::int64_t i) noexcept {
  if (place.head_dim == 0) return i;
  const std::int64_t within = i % place.head_dim, half = place.head_dim / 2;
  return i - within + within % half * 2 + within / half;
}

// "blk.3." for "layers.3.wq"; empty for what stands outside the layers.
std::string gguf_layer_prefix(const std::string& parameter);

}  // namespace qkv
