// SPDX-License-Identifier: Apache-2.0
// Trains byte pair merges on a text.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "text/piece_counts.h"
#include "text/tokenizer_data.h"

namespace qkv {

// Tokens 0 to 255 are the bytes, 256 is the end token, and each later one joins the pair of tokens that currently
// occurs most often within the pieces of the text (ties: lowest left id, then lowest right id). Stops at `size` tokens,
// or earlier when no pair occurs twice. Two merges that spell the same bytes share a token. O(n log n) in the bytes of
// the distinct pieces. progress(tokens so far, size) may be empty. Throws std::invalid_argument if size < 257.
TokenizerData train_bpe_data(std::string_view text, std::int64_t size,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

// The same, from counted pieces.
TokenizerData train_bpe_data(const PieceCounts& pieces, std::int64_t size,
                             const std::function<void(std::int64_t, std::int64_t)>& progress);

// The byte tokenizer: 256 bytes and the end token.
TokenizerData byte_tokenizer_data();

}  // namespace qkv
