// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace qkv::cli {

// Of `words`, the one with the fewest changes of a letter from `word` (inserted, deleted, replaced or swapped with its
// neighbour), if that is at most a third of its letters, rounded up; else "".
std::string nearest_word(std::string_view word, std::span<const std::string> words);

}  // namespace qkv::cli
