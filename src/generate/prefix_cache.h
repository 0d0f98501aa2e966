// SPDX-License-Identifier: Apache-2.0
// KV caches of texts, found again by how other texts begin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "qkv/model_state.h"

namespace qkv {

// The tokens of a text, the first state.size() of them evaluated.
struct Prefix {
  std::vector<std::int32_t> tokens;
  ModelState state;
  std::vector<float> logits;   // [vocab_size] after the first `logits_at` tokens, or empty
  std::int64_t logits_at = 0;  // 0: there are none

  // How many tokens of `text` need no evaluation given this: those that both begin with and that are evaluated here,
  // without the last one of the text unless its logits are here. all: once all tokens here are evaluated.
  std::int64_t reusable(std::span<const std::int32_t> text, bool all = false) const noexcept;
  std::size_t memory_bytes() const noexcept;
};

// The most recently used prefixes, in so many bytes of memory.
class PrefixCache {
 public:
  explicit PrefixCache(std::size_t limit) : limit_(limit) {}

  // The prefix of which more than `count` tokens of the text can be reused, and most, if any; count becomes how many.
  const Prefix* find(std::span<const std::int32_t> text, std::int64_t& count) const noexcept;
  // The state of the first `count` tokens of a prefix found: its own if it has no more, and then the prefix is gone,
  // else a copy.
  ModelState take(const Prefix* found, std::int64_t count);
  // What is evaluated of a prefix; replaces those that it begins with.
  void add(Prefix prefix);
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  using Entry = std::list<Prefix>::iterator;
  void erase(Entry entry);

  std::size_t limit_, bytes_ = 0;
  std::list<Prefix> prefixes_;  // the most recently used last
};

}  // namespace qkv
