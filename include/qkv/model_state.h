// SPDX-License-Identifier: Apache-2.0
// KV cache of a whole model: can be extended, truncated, or serialized.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qkv/kv_cache.h"

namespace qkv {

// Keys and values of the evaluated tokens, one KV cache per layer; created by Model::make_state(). Copies are deep. Not
// thread-safe.
class ModelState {
 public:
  std::int64_t size() const noexcept { return layers.empty() ? 0 : layers.front().size(); }  // tokens evaluated
  // Keeps only the first `size` tokens, 0 <= size <= size(). The next token is at position `size`, with results
  // bit-identical to never having evaluated the removed ones. Throws std::invalid_argument and changes nothing.
  void truncate(std::int64_t size);
  ModelState prefix(std::int64_t size) const;  // a copy of the first `size` tokens; throws as truncate() does
  // Bytes per token over all layers, and bytes allocated.
  std::size_t bytes_per_token() const noexcept;
  std::size_t memory_bytes() const noexcept;

  // The contents in serialized form, for a later run of the same model: a 64-byte header with sizes and type, then per
  // layer the keys, [n_kv_head, size, head_dim], and the values, in the cache type. Little-endian.
  std::vector<std::byte> to_bytes() const;
  // Restores them. The state must be of the same model and cache type; throws std::invalid_argument for other sizes or
  // types, or truncated or excess bytes, before anything is changed.
  void from_bytes(std::span<const std::byte> bytes);

  std::vector<KvCache> layers;
};

// Tokens of one sequence, to be evaluated in a batch with others.
struct DecodePart {
  std::span<const std::int32_t> tokens;  // at least one; they follow those in `state`
  ModelState* state = nullptr;           // a different one for each part
  std::span<float> logits = {};          // [vocab_size], of the part's last token; may be empty
};

}  // namespace qkv
