// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli.h"

namespace qkv::cli {

// Adds examples to the end of --help and of the manual page of every command that has no such text yet.
void add_examples(CLI::App& app);

}  // namespace qkv::cli
