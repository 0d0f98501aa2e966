// SPDX-License-Identifier: Apache-2.0
// Reads text from lines of JSON.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace qkv {

// Calls take(text) with the string `field` of the object on each line of `lines`; blank lines are ignored. Calls
// refuse(at, fault) with the position among the bytes if a line is not a JSON object, does not have the field, has it
// twice, or its value is not a string; it may throw. NaN, infinities and halves of surrogate pairs, which JSON does not
// have and many programs write, are faults in the field only.
void each_json_line(std::string_view lines, const std::string& field, const std::function<void(std::string_view)>& take,
                    const std::function<void(std::size_t at, const std::string& fault)>& refuse);

}  // namespace qkv
