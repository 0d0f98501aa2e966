// SPDX-License-Identifier: Apache-2.0
// Ending a text at one of several strings, wherever tokens cut it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace qkv {

// A stream of bytes that ends before the first place where a stop string stands complete. Bytes that could still become
// one are held back, so nothing of a stop string is ever shown. Strings are compared as bytes. Not thread-safe.
class StopStrings {
 public:
  StopStrings() = default;                                 // none: everything goes through at once
  explicit StopStrings(std::vector<std::string> strings);  // throws std::invalid_argument on an empty one

  // The bytes that can be shown now. The first string to be complete ends the text, the longest if several are at once;
  // however the bytes are cut, the same is shown. After the end nothing more is.
  std::string push(std::string_view bytes);
  std::string flush();                            // what is held back: the text ended without a stop string
  bool found() const noexcept { return found_; }  // a stop string is complete

 private:
  std::vector<std::string> strings_;
  std::string held_;
  bool found_ = false;
};

}  // namespace qkv
