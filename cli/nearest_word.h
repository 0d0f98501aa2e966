// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qkv::cli {

// The word with the smallest edit distance from `word` (insert, delete, replace or swap of adjacent letters), if that
// is at most a third of its letters, rounded up; else "".
std::string nearest_word(std::string_view word, std::span<const std::string> words);

}  // namespace qkv::cli
