// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of a single piece of text.
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

// A pair of ids as a single integer that sorts by left id, then by right id.
inline std::uint64_t pair_key(std::int32_t left, std::int32_t right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Immutable and thread-safe. Refers to the TokenizerData it was created from, which must outlive it and not move.
class BpeEncoder {
 public:
  // Throws std::invalid_argument if a byte has no token (unless the data allow it) or a merge is invalid or a
  // duplicate.
  explicit BpeEncoder(const TokenizerData& data);

  std::int32_t byte_id(char byte) const noexcept { return byte_ids_[static_cast<unsigned char>(byte)]; }
  // Whether encode() does more than map each byte to byte_id().
  bool merges() const noexcept { return merge_count_ > 0 || !whole_.empty() || !complete_; }
  // Appends the ids of a piece: starting from single bytes (or characters), applies the merge of lowest rank, leftmost
  // first, until none applies. O(n log n) in the piece's length.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Target {
    std::int32_t rank, result;  // rank kNoRank: no merge
  };
  struct Slot {
    std::uint64_t pair;
    Target target;
  };
  static constexpr std::int32_t kNoRank = 0x7FFFFFFF;

  const Slot& slot(std::uint64_t pair) const noexcept;  // the pair's slot, or the free slot for it
  Target target(std::int32_t left, std::int32_t right) const noexcept { return slot(pair_key(left, right)).target; }
  std::vector<std::int32_t> known_symbols(std::string_view piece) const;
  std::vector<std::int32_t> character_symbols(std::string_view piece) const;
  void encode_short(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;
  void encode_long(std::span<const std::int32_t> symbols, std::vector<std::int32_t>& ids) const;

  std::array<std::int32_t, 256> byte_ids_{};  // -1: none
  std::int32_t unknown_ = -1;                 // replaces a byte without an id; -1: none
  bool fuse_unknown_ = false;
  bool complete_ = true;  // every byte has an id
  std::unordered_map<std::string_view, std::int32_t>
      characters_;           // TokenizerData::characters: ids of single characters
  std::vector<Slot> slots_;  // open-addressing hash table, at most half full; power-of-two size
  std::size_t merge_count_ = 0;
  std::unordered_map<std::string, std::int32_t> whole_;  // pieces that are tokens themselves (ignore_merges)
};

}  // namespace qkv
