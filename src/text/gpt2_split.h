// SPDX-License-Identifier: Apache-2.0
// GPT-2's pre-tokenizer pattern, matched directly on ASCII bytes.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv {

// End of the match of kGpt2Pattern that starts at byte `at`, or 0 if it depends on a non-ASCII character (use the
// regular expression). `at` must be below the text's size and at the start of a match.
std::size_t gpt2_piece_end(std::string_view text, std::size_t at) noexcept;

}  // namespace qkv
