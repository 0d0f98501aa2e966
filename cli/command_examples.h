// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli.h"

namespace qkv::cli {

// Adds examples to --help and the manual page of every command that has no footer of its own.
void add_examples(CLI::App& app);

}  // namespace qkv::cli
