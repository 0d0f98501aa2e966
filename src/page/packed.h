// SPDX-License-Identifier: Apache-2.0
// Bytes as text that a page can carry: deflated (zlib, RFC 1950), then five characters for four bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qkv {

// How bytes are deflated: by what repeats in them, or by how often each value occurs alone (noise; much faster).
enum class Deflate : std::uint8_t { repeats, values };

std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes, Deflate how);  // throws std::bad_alloc

// Digits are '(' to '|' without '<' ('}' replaces it): the text is safe inside <script>. Four bytes, the lowest
// first, are a number of five digits, the highest first; the last 1 to 3 bytes are 2 to 4 digits.
std::string base85(std::span<const std::uint8_t> bytes);

}  // namespace qkv
