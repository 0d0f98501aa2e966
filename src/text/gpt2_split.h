// SPDX-License-Identifier: Apache-2.0
// GPT-2's split, read straight from the bytes where they are ASCII.
#pragma once

#include <cstddef>
#include <string_view>

namespace qkv {

// Where the match of kGpt2Pattern that begins at byte `at` ends, or 0 if that depends on a character outside ASCII (a
// regular expression must say). `at` is below the text's size and is where a match begins.
std::size_t gpt2_piece_end(std::string_view text, std::size_t at) noexcept;

}  // namespace qkv
