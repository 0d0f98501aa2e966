// SPDX-License-Identifier: Apache-2.0
// Unicode normalization forms (Unicode Standard Annex 15).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer_data.h"

namespace qkv {

// Applies the forms to the text in order. Bytes that are not UTF-8 stay unchanged, and no characters are composed
// across them.
std::string normalise(std::string_view text, std::span<const Normaliser> forms);

}  // namespace qkv
