// SPDX-License-Identifier: Apache-2.0
// Encodes bytes as text for an HTML page: deflate (zlib, RFC 1950), then five characters per four bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace qkv {

// The deflate strategy: with string matching, or only Huffman coding (for noise; much faster).
enum class Deflate : std::uint8_t { repeats, values };

std::vector<std::uint8_t> deflated(std::span<const std::uint8_t> bytes, Deflate how);  // throws std::bad_alloc

// Digits are '(' to '|', with '}' instead of '<', so the text is safe inside <script>. Four little-endian bytes are a
// number of five digits, the highest first; the last 1 to 3 bytes are 2 to 4 digits.
std::string base85(std::span<const std::uint8_t> bytes);

}  // namespace qkv
