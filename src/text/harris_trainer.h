// SPDX-License-Identifier: Apache-2.0
// Trains morpheme segments on a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// The tokenizer with these segments, which must be unique and not empty. Ids: the segments in the given order, the
// bytes, the end token; with `bytes_first` the bytes, the segments, the end token.
TokenizerData harris_data(const std::vector<std::string>& segments, bool bytes_first = false);

// Zellig Harris' successor variety: the distinct pieces of GPT-2's split form a trie of bytes; the variety of a prefix
// is the number of its branches (the end of a piece counts as one); the same for suffixes, from the end. A piece is cut
// where ln(successor variety) + ln(predecessor variety) is higher than at the adjacent positions (at the first position
// of a plateau), never within a character. Segments and whole pieces are counted as often as their piece occurs; the
// `size` - 257 that save the most bytes, count * (bytes - 1) (ties: byte order), become tokens, longer ones first.
// Throws std::invalid_argument if size < 257.
TokenizerData train_harris_data(std::string_view text, std::int64_t size);

}  // namespace qkv
