// SPDX-License-Identifier: Apache-2.0
// Stop strings: end a text at one of several strings, even across token boundaries.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// A byte stream that ends before the first complete stop string. Bytes that may be the start of one are held back, so
// no part of a stop string is ever shown. Comparison is bytewise. Not thread-safe.
class StopStrings {
 public:
  StopStrings() = default;                                 // none: everything passes through immediately
  explicit StopStrings(std::vector<std::string> strings);  // throws std::invalid_argument for an empty string

  // Returns the bytes that can be shown. The first string to complete ends the text (the longest if several complete at
  // once); after that, nothing is returned. The result does not depend on how the bytes are split.
  std::string push(std::string_view bytes);
  std::string flush();                            // bytes held back; call when the text ended without a stop string
  bool found() const noexcept { return found_; }  // a stop string was found

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace qkv
