// SPDX-License-Identifier: Apache-2.0
// The output of `qkv inspect`.
#pragma once

#include <string>
#include <vector>

#include "heat_map.h"
#include "qkv/inspect.h"

namespace qkv::cli {

// A caveat about attention weights, in one line.
extern const char* const kWhatWeightsAreNot;

// One line per head: mean entropy, and mean weight on the first token, the previous token and itself.
std::string heads_text(const Trace& trace);
// One head: its heat map, and the top keys of each query.
std::string head_text(const Trace& trace, const HeadId& id, std::size_t top, Colours colours, std::size_t width);
// The next token predicted from each layer (logit lens).
std::string lens_text(const Trace& trace, const Tokenizer& tokenizer);
// Heads ranked by their behavior on repeated random tokens: the `top` of each kind; 0: all.
std::string scores_text(const std::vector<HeadScores>& scores, std::size_t top);
// Next-token probabilities before and after the change of heads.
std::string effect_text(const HeadEffect& effect, const Tokenizer& tokenizer, std::size_t top);

std::string head_name(const HeadId& id);  // "2.5"

}  // namespace qkv::cli
