// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// A pair of ids as one number that sorts by the left id, then by the right one.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Immutable once made, so any number of threads may use one. It looks into the TokenizerData it was made from, which
// must stay where it is.
class BpeEncoder {
 public:
  // Throws std::invalid_argument if a byte has no token (unless the data allow it) or a merge is wrong or given twice.
  explicit BpeEncoder(const TokenizerData& data);

  std::int32_t byte_id(char byte) const noexcept { return byte_ids_[static_cast<unsigned char>(byte)]; }
  // Whether there is more to do than to put byte_id() for each byte.
  bool merges() const noexcept { return merge_count_ > 0 || !whole_.empty() || !complete_; }
  // Appends the ids of a piece: from single bytes (or characters), the most urgent merge first, the leftmost of equals,
  // until none applies. O(n log n) in the piece's length.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Target {
    std::int32_t rank, result;  // rank kNoRank: the pair is not merged
  };
  struct Slot {
    std::uint64_t pair;
    Target target;
  };
  static constexpr std::int32_t kNoRank = 0x7FFFFFFF;

  const Slot& slot(std::uint64_t pair) const noexcept;  // the pair's, or the free one where it would stand
  Target target(std::int32_t left, std::int32_t right) const noexcept { return slot(pair_key(left, right)).target; }
  std::vector<std::int32_t> known_symbols(std::string_view piece) const;
  std::vector<std::int32_t> character_symbols(std::string_view piece) const;
  void encode_short(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;
  void encode_long(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_{};  // -1: there is none
  std::int32_t unknown_ = -1;                 // what stands for a byte without one; -1: nothing does
  bool fuse_unknown_ = false;
  bool complete_ = true;                                           // each byte has one
  std::unordered_map<std::string_view, std::int32_t> characters_;  // TokenizerData::characters: ids of single ones
  std::vector<Slot> slots_;  // a hash table with open addressing, at most half full; its size is a power of two
  std::size_t merge_count_ = 0;
  std::unordered_map<std::string, std::int32_t> whole_;  // pieces that are a token as they stand (ignore_merges)
};

}  // namespace qkv
