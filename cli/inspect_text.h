// SPDX-License-Identifier: Apache-2.0
// What `qkv inspect` prints.
#pragma once

#include <string>
#include <vector>

#include "heat_map.h"
#include "qkv/inspect.h"

namespace qkv::cli {

// What attention weights are not, in one line.
extern const char* const kWhatWeightsAreNot;

// One line a head: its mean entropy, and how its weights fall on first, previous and own token.
std::string heads_text(const Trace& trace);
// One head: its heat map, and for each query the keys that it reads most.
std::string head_text(const Trace& trace, const HeadId& id, std::size_t top, Colours colours, std::size_t width);
// The next token after the text, stage by stage of the lens.
std::string lens_text(const Trace& trace, const Tokenizer& tokenizer);
// Heads by how they behave on repeated random tokens; `top` of each kind, and 0 is all.
std::string scores_text(const std::vector<HeadScores>& scores, std::size_t top);
// The next token before and after the heads were changed.
std::string effect_text(const HeadEffect& effect, const Tokenizer& tokenizer, std::size_t top);

std::string head_name(const HeadId& id);  // "2.5"

}  // namespace qkv::cli
