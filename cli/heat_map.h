// SPDX-License-Identifier: Apache-2.0
// A heat map of weights for the terminal: colors if available, otherwise characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace qkv::cli {

enum class Colours : std::uint8_t { none, greys, full };  // full: 24 bits

// What standard output can show: `none` if it is not a terminal, if NO_COLOR is set (no-color.org) or TERM is dumb.
// asked: "auto", "always" or "never".
Colours colours_of_output(const std::string& asked);
// Columns of the terminal; 100 if unknown.
std::size_t output_columns();

// One line per query, with its label; weights [queries, keys], 0 ... 1. A map that does not fit into `width` columns
// shows the largest weight per block of queries and keys, and says so. Brightness grows with the square root of the
// weight, to keep small weights visible.
std::string heat_map(const float* weights, std::int64_t queries, std::int64_t keys,
                     const std::vector<std::string>& labels, Colours colours, std::size_t width);

}  // namespace qkv::cli
