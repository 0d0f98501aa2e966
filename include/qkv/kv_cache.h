// SPDX-License-Identifier: Apache-2.0
// KV cache of one attention layer: keys and values of the tokens so far, so that a new token costs O(context).
#pragma once

#include <cstddef>
#include <cstdint>

#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv {

// k and v are [batch, n_kv_head, new_len, d]; all sequences of the batch have the same length. Copies are deep. Not
// thread-safe. Misuse throws std::invalid_argument and leaves the cache unchanged.
class KvCache {
 public:
  // Holds up to `capacity` tokens. window 0 keeps all: appending past the capacity is an error, and the allocation
  // doubles as the cache fills. window > 0 is a rolling cache for models whose tokens see `window` tokens including
  // themselves (window_left = window - 1): when full, it keeps the new tokens and the window - 1 before them, or the
  // newest `capacity` tokens if those do not fit. dtype: f32, bf16, f16, q8_0 (32 numbers of a row share a scale: 8.5
  // bits per number), or f64 (reference path).
  KvCache(std::int64_t batch, std::int64_t n_kv_head, std::int64_t d_k, std::int64_t d_v, std::int64_t capacity,
          std::int64_t window = 0, DType dtype = DType::f32);

  // Adds the keys and values of new tokens, rounded to the cache's type. A finite number that the type cannot hold
  // (f16: beyond 65504) throws NonFiniteError, and the cache stays as it was.
  void append(const ConstView& k, const ConstView& v);

  std::int64_t size() const noexcept { return size_; }            // tokens in the cache
  std::int64_t first_key() const noexcept { return first_key_; }  // absolute position of the oldest one
  std::int64_t capacity() const noexcept { return capacity_; }
  bool finite() const;  // whether no key or value held is NaN or infinite

  // The cached keys and values, [batch, n_kv_head, size, d], without a copy; valid until the cache changes.
  ConstView k() const noexcept;
  ConstView v() const noexcept;

  void discard_oldest(std::int64_t count);  // 0 <= count <= size
  void truncate(std::int64_t size);         // keeps the oldest `size` tokens; 0 <= size <= size()
  void clear() noexcept;                    // back to empty
  // A copy of the oldest `size` tokens, 0 <= size <= size(); only for a cache that has discarded none.
  KvCache prefix(std::int64_t size) const;

  // Causal, bottom-right attention of the newest q_len tokens over the whole cache. q [batch, n_head, q_len, d_k];
  // their keys and values must already be in the cache. Of `options` only scale, softcap, window_left, alibi_slopes,
  // sinks and path may be set. q is rounded to the cache's type (for q8_0, q, k and v are used as f32). Bit-identical
  // to a full pass over the same tokens with the same rounding. A query whose window is no longer complete in a rolling
  // cache is an error (append fewer than capacity - window + 2 tokens at once); tokens removed by discard_oldest are
  // simply not visible.
  void attend(const ConstView& q, const AttentionOptions& options, const AttentionResults& results) const;

  // The type of queries in attend(): the cache's type, f32 for q8_0.
  DType query_dtype() const noexcept { return is_blocks(k_.dtype()) ? DType::f32 : k_.dtype(); }
  // Bytes per token of keys and values, over all sequences and heads.
  std::size_t bytes_per_token() const noexcept;
  std::size_t memory_bytes() const noexcept;  // allocated, including spare capacity
  // save writes the contents, size() * bytes_per_token() bytes. restore reads them into a cache of the same sizes and
  // type, replacing its contents with those `size` tokens, the first at position 0. size <= capacity().
  void save(std::byte* to) const noexcept;
  void restore(const std::byte* from, std::int64_t size);

 private:
  KvCache() = default;
  void grow(std::int64_t allocated);

  std::int64_t capacity_ = 0, window_ = 0, size_ = 0, first_key_ = 0, offset_ = 0;
  std::int64_t first_query_ = 0;  // absolute position of the oldest query whose window is complete
  std::int64_t d_k_ = 0, d_v_ = 0;
  // [batch, n_kv_head, allocated, d in whole blocks]; tokens are rows offset_ ... offset_ + size_ - 1.
  Tensor k_, v_;
};

}  // namespace qkv
