// SPDX-License-Identifier: Apache-2.0
// Text from lines of JSON.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace qkv {

struct LinesPlace {
  const std::string& path;
  std::int64_t at;  // of the first byte in the file
};

// Calls take(text) with the string `field` of the object on each line of `lines`; blank lines are nothing. Throws
// qkv::FileError, with the line's place, for what is not a JSON object, lacks the field, has it twice or has something
// else than a string there.
void each_json_line(std::string_view lines, const std::string& field, const LinesPlace& place,
                    const std::function<void(std::string_view)>& take);

}  // namespace qkv
