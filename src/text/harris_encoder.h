// SPDX-License-Identifier: Apache-2.0
// Text as Harris' morpheme segments, the longest first (docs/formats.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// Immutable once made, so any number of threads may use one.
class HarrisEncoder {
 public:
  // Throws std::invalid_argument if a byte has no token or two longer tokens are alike (of one-byte tokens the first
  // counts).
  explicit HarrisEncoder(const TokenizerData& data);

  // Appends, from left to right, each time the id of the longest token that the rest of the text begins with. Time:
  // the text's length times that of the longest token.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  // A tree of bytes: from a node and a byte to the next node.
  static std::uint64_t edge(std::int32_t node, char byte) noexcept {
    return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<unsigned char>(byte);
  }
  std::unordered_map<std::uint64_t, std::int32_t> edges_;
  std::vector<std::int32_t> ids_;  // [nodes] -1: no token ends here
};

}  // namespace qkv
