// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <charconv>
#include <string>

namespace qkv {

// The shortest text that parses back to the number: 3, 0.1, 1e-05.
inline std::string number_text(double number) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, number);
  return {text, end};
}

}  // namespace qkv
