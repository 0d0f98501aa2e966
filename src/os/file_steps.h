// SPDX-License-Identifier: Apache-2.0
// A seam for tests of crashes: every system call that changes a file or a folder passes here first, and a test can have
// the process die in the place of any one of them. The variable QKV_FILE_STEPS chooses:
//   log:FILE   appends a line a step to FILE: its number from 1, its name, the path
//   kill:N     sends the process SIGKILL in the place of step N
// While it is set each large write is made in two halves, so that a file can also be left half written. Without it a
// step costs one comparison. docs/decisions/a_checkpoint_is_a_directory.md lists what is built on it.
#pragma once

#include <string>

namespace qkv {

// Whether the variable is set. Throws std::invalid_argument if it is something else than above.
bool file_steps_watched();
// To be called right before the system call. Any thread.
void file_step(const char* name, const std::string& path);

}  // namespace qkv
