// SPDX-License-Identifier: Apache-2.0
#include "qkv/stop_strings.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace qkv {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) {
    if (string.empty()) throw std::invalid_argument("[stop strings] expected strings of at least one byte; found none");
  }
}

std::string StopStrings::push(std::string_view bytes) {
  if (found_) return "";
  held_ += bytes;
  // The match that ends first, and the longest of those: independent of how the bytes are split into calls.
  std::size_t begin = 0, end = std::string::npos;
  for (const std::string& string : strings_) {
    const std::size_t at = held_.find(string);
    if (at == std::string::npos || at + string.size() > end || (at + string.size() == end && at > begin)) continue;
    begin = at;
    end = at + string.size();
  }
  if (end != std::string::npos) {
    found_ = true;
    std::string shown = held_.substr(0, begin);
    held_.clear();
    return shown;
  }
  // The longest suffix of the held text that is a prefix of a stop string.
  std::size_t kept = 0;
  for (const std::string& string : strings_) {
    for (std::size_t n = std::min(string.size() - 1, held_.size()); n > kept; --n) {
      if (held_.compare(held_.size() - n, n, string, 0, n) == 0) kept = n;
    }
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

std::string StopStrings::flush() { return std::exchange(held_, std::string()); }

}  // namespace qkv
