// SPDX-License-Identifier: Apache-2.0
// Reads text from lines of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qkv {

struct LinesPlace {
  const std::string& path;
  std::int64_t at;  // offset of the first byte within the file
};

// Calls take(text) with the string `field` of the object on each line of `lines`; blank lines are ignored. Throws
// qkv::FileError, with the line's position, if a line is not a JSON object, does not have the field, has it twice, or
// its value is not a string.
void each_json_line(std::string_view lines, const std::string& field, const LinesPlace& place,
                    const std::function<void(std::string_view)>& take);

}  // namespace qkv
