// SPDX-License-Identifier: Apache-2.0
// Kinds of options shared by several commands.
#pragma once

#include <string>
#include <vector>

#include "number_options.h"

namespace qkv::cli {

// --device NAME, one of qkv::devices(); empty unless given.
CLI::Option* add_device_option(CLI::App& command, std::string& device);

// Adds an option for a number of at least `least`; help shows its default.
template <class T>
CLI::Option* add_count(CLI::App& command, const std::string& names, T& value, int least, const std::string& help,
                       const char* unit = "N") {
  return add_number(command, names, value, help)->check(at_least(least))->capture_default_str()->type_name(unit);
}

// Adds an option whose value is one of a few words.
CLI::Option* add_choice(CLI::App& command, const std::string& names, std::string& value,
                        const std::vector<std::string>& words, const std::string& help);

}  // namespace qkv::cli
