// SPDX-License-Identifier: Apache-2.0
// What a model keeps of the tokens it has read, so that a text can be gone on from, cut back, or put aside as bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "qkv/kv_cache.h"

namespace qkv {

// Keys and values of the tokens a model has read, one cache a layer; made by Model::make_state(). Copying copies the
// contents. Not thread-safe.
class ModelState {
 public:
  std::int64_t size() const noexcept { return layers.empty() ? 0 : layers.front().size(); }  // tokens read
  // Forgets all but the first `size` tokens, 0 <= size <= size(): what is read next stands at position `size`, and has
  // the bits it would have had if no more had been read. Throws std::invalid_argument and changes nothing.
  void truncate(std::int64_t size);
  ModelState prefix(std::int64_t size) const;  // a copy of the first `size` tokens; throws as truncate() does
  // Bytes of memory that a token takes in all layers, and those allocated now.
  std::size_t bytes_per_token() const noexcept;
  std::size_t memory_bytes() const noexcept;

  // The contents for a file that another run of the same model takes back: 64 bytes that say sizes and type, then of
  // each layer the keys, [n_kv_head, size, head_dim], and the values, as they are stored. Little-endian.
  std::vector<std::byte> to_bytes() const;
  // Takes them back. The state must be of the same model and cache type; throws std::invalid_argument for bytes of
  // other sizes or type, cut short or too long, before anything is changed.
  void from_bytes(std::span<const std::byte> bytes);

  std::vector<KvCache> layers;
};

// Tokens of one sequence to be read in a batch with others.
struct DecodePart {
  std::span<const std::int32_t> tokens;  // [any number], at least one; they follow what `state` holds
  ModelState* state = nullptr;           // each part has its own
  std::span<float> logits = {};          // [vocab_size], of the part's last token; or empty: not wanted
};

}  // namespace qkv
