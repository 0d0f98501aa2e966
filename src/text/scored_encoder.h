// SPDX-License-Identifier: Apache-2.0
// Encodes by piece scores, as sentencepiece's BPE models (LLaMA 1 and 2) do.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// The text with each U+2581, which represents a space in these models, replaced by a space.
std::string with_spaces(std::string_view text);

// Immutable and thread-safe. Refers to the TokenizerData it was created from, which must outlive it and not move.
class ScoredEncoder {
 public:
  // Throws std::invalid_argument unless there is one score per token, and a token for each byte or an unknown token.
  explicit ScoredEncoder(const TokenizerData& data);

  // Appends the ids of a text: starting from its characters, joins the two neighbours that form the token with the
  // highest score, leftmost first, until none form one. A character without a token becomes its bytes. O(n log n) in
  // the text's length.
  void encode(std::string_view text, std::vector<std::int32_t>& ids) const;

 private:
  const TokenizerData& data_;
  std::unordered_map<std::string_view, std::int32_t> pieces_;
  std::array<std::int32_t, 256> byte_ids_{};
};

}  // namespace qkv
