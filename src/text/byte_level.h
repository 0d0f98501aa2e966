// SPDX-License-Identifier: Apache-2.0
// The printable spelling of bytes in GPT-2's vocabulary: '!' to '~', U+00A1 to U+00AC and U+00AE to U+00FF represent
// themselves, U+0100 and up represent the other 68 bytes, in order.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace qkv {

std::string to_byte_level(std::string_view bytes);
// std::nullopt if a character is not one of the 256.
std::optional<std::string> from_byte_level(std::string_view text);

}  // namespace qkv
