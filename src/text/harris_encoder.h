// SPDX-License-Identifier: Apache-2.0
// Encodes text as Harris' morpheme segments, longest first (docs/formats.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// Immutable and thread-safe.
class HarrisEncoder {
 public:
  // Throws std::invalid_argument if a byte has no token or two longer tokens are identical (of one-byte tokens the
  // first counts).
  explicit HarrisEncoder(const TokenizerData& data);

  // Appends ids from left to right, each for the longest token that the remaining text starts with. Time: length of the
  // text times length of the longest token.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  // Key of the trie edge for `byte` from `node`.
  static std::uint64_t edge(std::int32_t node, char byte) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<unsigned char>(byte);
  }
  std::unordered_map<std::uint64_t, std::int32_t> edges_;
  std::vector<std::int32_t> ids_;  // [nodes] -1: no token ends here
};

}  // namespace qkv
