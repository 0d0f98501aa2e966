// SPDX-License-Identifier: Apache-2.0
// A hook for crash tests: it is called before every system call that changes a file or directory, and a test can kill
// the process instead of any of them. The environment variable QKV_FILE_STEPS selects:
//   log:FILE   appends one line per step to FILE: its number from 1, its name, the path
//   kill:N     sends the process SIGKILL instead of step N
// While it is set, each large write is done in two halves, so that a file can also be left half written. If unset, a
// step costs one comparison. docs/decisions/a_checkpoint_is_a_directory.md lists its uses.
#pragma once

#include <string>

namespace qkv {

// Whether the variable is set. Throws std::invalid_argument if its value is not one of the above.
bool file_steps_watched();
// Call right before the system call. Thread-safe.
void file_step(const char* name, const std::string& path);

}  // namespace qkv
