// SPDX-License-Identifier: Apache-2.0
// A matrix of weights for the terminal: colours where it has them, characters where it does not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qkv::cli {

enum class Colours : std::uint8_t { none, greys, full };  // full: 24 bits

// What standard output can show: `none` if it is no terminal, if NO_COLOR is set (no-color.org) or TERM is dumb. asked:
// "auto", "always" or "never".
Colours colours_of_output(const std::string& asked);
// Columns of the terminal, 100 if it does not say.
std::size_t output_columns();

// One line a query, each led by its label; weights [queries, keys], 0 ... 1. A map that does not fit into `width`
// columns shows blocks of keys and queries by their largest weight, and says so. Brightness grows with the root of the
// weight, so that small ones are seen.
std::string heat_map(const float* weights, std::int64_t queries, std::int64_t keys,
                     const std::vector<std::string>& labels, Colours colours, std::size_t width);

}  // namespace qkv::cli
