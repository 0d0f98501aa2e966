// SPDX-License-Identifier: Apache-2.0
// Learning morpheme segments from a text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// The tokenizer of these segments, which must be unique and not empty. Ids: the segments in their order, the bytes, the
// end token; with `bytes_first` the bytes, the segments, the end token.
TokenizerData harris_data(const std::vector<std::string>& segments, bool bytes_first = false);

// Zellig Harris' successor variety: the distinct pieces of GPT-2's split form a tree of bytes; the variety of a prefix
// is the number of branches behind it (the end of the piece is one), and the same from the back for suffixes. A piece
// is cut where ln(successor variety) + ln(predecessor variety) is higher than at the places before and after (of a
// plateau at its first place), never within a character. Segments and whole pieces count as often as their piece
// occurs; the `size` - 257 that save the most bytes, count * (bytes - 1), of equals the first by their bytes, become
// tokens, the longer ones first. Throws std::invalid_argument if size < 257.
TokenizerData train_harris_data(std::string_view text, std::int64_t size);

}  // namespace qkv
