// SPDX-License-Identifier: Apache-2.0
// Repetition in generated text.
#pragma once

#include <string_view>

namespace qkv {

// Fraction of a text's bytes in 32-byte sequences that occurred earlier in the text: 0 without repetition, near 1 in a
// loop. A text that repeats a period of p bytes to its end has (size - p) / size. Like seq-rep-n (Welleck et al.,
// "Neural text generation with unlikelihood training", 2020), but on bytes, so that it does not depend on the
// tokenizer. 0 for a text of 32 bytes or fewer. Thread-safe.
double repetition(std::string_view text);

// Threshold from which a sample counts as repetitive. Values for ordinary text: docs/performance.md.
inline constexpr double kRepetitionThreshold = 0.5;

}  // namespace qkv
