// SPDX-License-Identifier: Apache-2.0
// The keys and values of the tokens read so far, of one attention layer, so that a new token costs O(context).
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv {

// k and v are given as [batch, n_kv_head, new_len, d]; all sequences of the batch have the same length. Copying a cache
// copies its contents. Not thread-safe. Misuse throws std::invalid_argument and leaves the cache as it was.
class KvCache {
 public:
  // Holds up to `capacity` tokens. window 0 keeps all: appending past the capacity is an error, and memory is taken as
  // it fills, in doublings. window > 0 is a rolling cache for models whose tokens see `window` tokens, themselves
  // included (window_left = window - 1): when it is full it keeps the new tokens and the window - 1 before them, or the
  // newest `capacity` tokens if that is more than fits. dtype: f32, bf16, f16, q8_0 (32 numbers of a row share a scale:
  // 8.5 bits per number), or f64 (reference path).
  KvCache(std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v, std::int64_t capacity,
          std::int64_t window = 0, DType dtype = DType::f32);

  // Adds the keys and values of new tokens, rounded to the cache's type.
  void append(const ConstView& k, const ConstView& v);

  std::int64_t size() const noexcept { return size_; }            // tokens held
  std::int64_t first_key() const noexcept { return first_key_; }  // absolute position of the oldest one held
  std::int64_t capacity() const noexcept { return capacity_; }

  // The keys and values held, [batch, n_kv_head, size, d], without a copy; valid until the cache next changes.
  ConstView k() const noexcept;
  ConstView v() const noexcept;

  void discard_oldest(std::int64_t count);  // 0 <= count <= size
  void truncate(std::int64_t size);         // keeps the oldest `size` tokens; 0 <= size <= size()
  void clear() noexcept;                    // as new
  // A copy of the oldest `size` tokens, 0 <= size <= size(), of a cache that has discarded none.
  KvCache prefix(std::int64_t size) const;

  // Attention of the newest q_len tokens, q [batch, n_head, q_len, d_k], whose keys and values are in the cache
  // already, over all that it holds: causal, bottom-right. Of `options` only scale, softcap, window_left, alibi_slopes,
  // sinks and path may be set. q is rounded to the cache's type (to f32 for q8_0, as are k and v when they are read).
  // Gives the bits of a full pass over the same tokens, rounded alike. A query whose window a rolling cache no longer
  // holds is an error (append fewer than capacity - window + 2 at once); after discard_oldest, what was discarded is
  // not read, which is what was asked for.
  void attend(const ConstView& q, const AttentionOptions& options, const AttentionResults& results) const;

  // The type that attend() takes queries in: that of the elements, f32 for q8_0.
  DType query_dtype() const noexcept { return is_blocks(k_.dtype()) ? DType::f32 : k_.dtype(); }
  // Bytes of memory that a token's keys and values take, all sequences and heads counted.
  std::size_t bytes_per_token() const noexcept;
  std::size_t memory_bytes() const noexcept;  // allocated now, for tokens to come too
  // Writes what is held, size() * bytes_per_token() bytes, and takes it back into a cache of the same sizes and type
  // whose contents are then those `size` tokens, the first of them at position 0. size <= capacity().
  void save(std::byte* to) const noexcept;
  void restore(const std::byte* from, std::int64_t size);

 private:
  KvCache() = default;
  void grow(std::int64_t allocated);

  std::int64_t capacity_ = 0, window_ = 0, size_ = 0, first_key_ = 0, offset_ = 0;
  std::int64_t first_query_ = 0;  // absolute position of the oldest query whose window is held in full
  std::int64_t d_k_ = 0, d_v_ = 0;
  // [batch, n_kv_head, room, d in whole blocks]; held tokens are rows offset_ ... offset_ + size_.
  Tensor k_, v_;
};

}  // namespace qkv
