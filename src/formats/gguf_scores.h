// SPDX-License-Identifier: Apache-2.0
// Byte pairs of characters as pieces with scores, the only way in which GGUF can say them.
#pragma once

#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// Scores [size] by which joining the best pair of neighbours first gives what the merges of `data` (of characters)
// give, for every text: minus the place of the token among those that merges make. Throws std::invalid_argument, saying
// why, unless
// - whatever two pieces make a token, a merge says so (else joining by score would do what no merge does);
// - all merges of a token stand together, so that tokens have an order.
// Then the two can only differ where neighbours can be joined to one token in two ways that overlap, of which the left
// one is first by score and the more urgent one by merges; no vocabulary is known where text comes to that (the test
// draws some hundreds).
std::vector<float> scores_of_merges(const TokenizerData& data);

}  // namespace qkv
