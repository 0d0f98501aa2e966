// SPDX-License-Identifier: Apache-2.0
// The printable spelling of bytes that GPT-2's vocabulary uses: '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF stand
// for themselves, the other 68 bytes for U+0100 and upward, in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qkv {

std::string to_byte_level(std::string_view bytes);
// Nothing if a character is none of the 256.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace qkv
