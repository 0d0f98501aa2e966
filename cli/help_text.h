// SPDX-License-Identifier: Apache-2.0
// The text of --help, wrapped to the width of the terminal.
#pragma once

#include <cstddef>
#include <string>

#include "command_facts.h"

namespace qkv::cli {

// Columns of the terminal on standard output, between 50 and 120; 80 if it is not a terminal.
std::size_t help_width();

std::string help_text(const CommandFacts& command, std::size_t width);

}  // namespace qkv::cli
