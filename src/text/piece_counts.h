// SPDX-License-Identifier: Apache-2.0
// Counts the distinct pieces of a text, in bounded memory.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace qkv {

// The contents depend only on what was added and merged, and in which order. Not thread-safe.
class PieceCounts {
 public:
  // Above this many distinct pieces, or bytes of them, merge() drops the rarest until half of the limit is left.
  struct Limits {
    std::size_t pieces = std::numeric_limits<std::size_t>::max(), bytes = std::numeric_limits<std::size_t>::max();
  };
  PieceCounts() : PieceCounts(Limits{}) {}
  explicit PieceCounts(Limits limits) : limits_(limits), slots_(1024) {}

  void add(std::string_view piece, std::int64_t count = 1);
  void add_text(std::string_view text);  // pieces of GPT-2's split
  void merge(const PieceCounts& other);
  void clear();

  std::size_t size() const noexcept { return size_; }
  std::int64_t forgotten() const noexcept {
    return forgotten_;
  }  // number of drops; a piece counts each time it is dropped
  std::vector<std::pair<std::string_view, std::int64_t>> sorted() const;  // by bytes

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::int64_t count = 0;  // 0: free
    std::uint32_t at = 0, length = 0;
  };

  std::string_view piece(const Slot& slot) const noexcept {
    return std::string_view(bytes_).substr(slot.at, slot.length);
  }
  void add_hashed(std::uint64_t hash, std::string_view piece, std::int64_t count);
  void grow();
  void forget_the_rarest();

  Limits limits_;
  std::vector<Slot> slots_;  // open addressing, at most half full; power-of-two size
  std::string bytes_;
  std::size_t size_ = 0;
  std::int64_t forgotten_ = 0;
};

}  // namespace qkv
