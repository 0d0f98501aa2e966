// SPDX-License-Identifier: Apache-2.0
// Unicode's normalization forms (Unicode Standard Annex 15).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer_data.h"

namespace qkv {

// The text in each form in turn. Bytes that are no UTF-8 stay as they are, and characters join over none of them.
std::string normalise(std::string_view text, std::span<const Normaliser> forms);

}  // namespace qkv
