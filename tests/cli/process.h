// SPDX-License-Identifier: Apache-2.0
// Runs the qkv program and captures its output.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace qkv_test {

struct Finished {
  int status = -1;  // exit status, or -1 - the signal's number
  std::string out;
  std::string err;
};

// Runs `qkv ARGUMENTS...` to its end, with `input` on standard input. on_output (may be empty) is called as standard
// output grows, and may send signals to the process.
Finished run_qkv(const std::vector<std::string>& arguments, const std::string& input = "",
                 const std::function<void(const std::string& out, int pid)>& on_output = {});
// Shell: continues when the reader of standard output is gone.
inline constexpr const char* kUntilReaderIsGone = "trap '' PIPE; while echo x; do :; done 2>/dev/null; ";
// Runs a shell command in which $QKV is the program.
Finished run_shell(const std::string& command);

}  // namespace qkv_test
