// SPDX-License-Identifier: Apache-2.0
// Character-level BPE as pieces with scores, the only form that GGUF can store.
#pragma once

#include <vector>

#include "text/tokenizer_data.h"

namespace qkv {

// Scores [size] with which repeatedly joining the best-scored pair of neighbours gives the same tokens as the merges of
// `data` (character-level): minus the rank of the token among the results of merges. Throws std::invalid_argument with
// the reason unless
// - every pair of pieces that concatenates to a token has a merge (otherwise joining by score would do what no merge
//   does);
// - the merges of each token are contiguous, so that tokens can be ranked.
// The two can then only differ if neighbours can be joined to one token in two overlapping ways: scores prefer the left
// one, merges the one of lower rank. No known vocabulary has text where this happens (the test samples several
// hundred).
std::vector<float> scores_of_merges(const TokenizerData& data);

}  // namespace qkv
