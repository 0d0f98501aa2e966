// SPDX-License-Identifier: Apache-2.0
// Pieces by score, as sentencepiece's BPE models (LLaMA 1 and 2) have them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// The text with a space for each U+2581, which is how these models spell one.
std::string with_spaces(std::string_view text);

// Immutable once made, so any number of threads may use one. It looks into the TokenizerData it was made from, which
// must stay where it is.
class ScoredEncoder {
 public:
  // Throws std::invalid_argument if there is not one score a token, or a byte has no token and there is no unknown one.
  explicit ScoredEncoder(const TokenizerData& data);

  // Appends the ids of a text: from its characters, the two neighbours that make the token of the highest score are
  // joined first, the leftmost of equals, until no two make one. A character that is no token becomes its bytes.
  // O(n log n) in the text's length.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  const TokenizerData& data_;
  std::unordered_map<std::string_view, std::int32_t> pieces_;
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace qkv
