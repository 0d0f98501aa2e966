// SPDX-License-Identifier: Apache-2.0
// KV caches found by shared prefix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "qkv/model_state.h"

namespace qkv {

// The tokens of a sequence; the first state.size() of them are evaluated.
struct Prefix {
  std::vector<std::int32_t> tokens;
  ModelState state;
  std::vector<float> logits;   // [vocab_size] after the first `logits_at` tokens, or empty
  std::int64_t logits_at = 0;  // 0: no logits

  // Number of tokens of `text` that need not be evaluated: the shared prefix that is evaluated here, without the last
  // token of `text` unless its logits are here. all: as if all tokens here were evaluated.
  std::int64_t reusable(std::span<const std::int32_t> text, bool all = false) const noexcept;
  std::size_t memory_bytes() const noexcept;
};

// The most recently used prefixes, up to a limit in bytes.
class PrefixCache {
 public:
  explicit PrefixCache(std::size_t limit) : limit_(limit) {}

  // The prefix with the most reusable tokens of `text` if it has more than `count`, which is set to their number; else
  // null.
  const Prefix* find(std::span<const std::int32_t> text, std::int64_t& count) const noexcept;
  // The state of the first `count` tokens of a prefix returned by find(): moved out, and the prefix removed, if it has
  // no more tokens; else a copy.
  ModelState take(const Prefix* found, std::int64_t count);
  // Adds the evaluated part of a prefix; replaces those that are prefixes of it.
  void add(Prefix prefix);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  using Entry = std::list<Prefix>::iterator;
  void erase(Entry entry);

  std::size_t limit_, bytes_ = 0;
  std::list<Prefix> prefixes_;  // most recently used last
};

}  // namespace qkv
