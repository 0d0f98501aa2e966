// SPDX-License-Identifier: Apache-2.0
// Whether a text runs in circles.
#pragma once

#include <string_view>

namespace qkv {

// The share of a text's bytes that lie in a stretch of 32 bytes which stood in the text before: 0 where nothing comes
// back, near 1 in a loop. A text that repeats a period of p bytes to its end has (size - p) / size. The idea of
// seq-rep-n (Welleck et al., "Neural text generation with unlikelihood training", 2020), on bytes, so that it means the
// same for every tokenizer. 0 for a text of 32 bytes or fewer. Any number of threads may call it.
double repetition(std::string_view text);

// From here on a sample counts as running in circles. What ordinary text has is in docs/performance.md.
inline constexpr double kRunsInCircles = 0.5;

}  // namespace qkv
