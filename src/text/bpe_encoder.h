// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding of one piece of text.
#pragma once

#include <array>
#include <cstdint>
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

// Immutable once made, so any number of threads may use one.
class BpeEncoder {
 public:
  // Throws std::invalid_argument if a byte has no token or a merge is wrong or given twice.
  explicit BpeEncoder(const TokenizerData& data);

  std::int32_t byte_id(char byte) const noexcept { return byte_ids_[static_cast<unsigned char>(byte)]; }
  bool merges() const noexcept { return !merges_.empty() || !whole_.empty(); }
  // Appends the ids of a piece: from single bytes, the most urgent merge first, the leftmost of equals, until none
  // applies. O(n log n) in the piece's length.
  void encode(std::string_view piece, std::vector<std::int32_t>& ids) const;

 private:
  struct Target {
    std::int32_t rank, result;
  };
  std::array<std::int32_t, 256> byte_ids_{};
  std::unordered_map<std::uint64_t, Target> merges_;
  std::unordered_map<std::string, std::int32_t> whole_;  // pieces that are a token as they stand (ignore_merges)
};

}  // namespace qkv
