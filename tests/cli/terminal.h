// SPDX-License-Identifier: Apache-2.0
// Runs the qkv program on a pseudo-terminal.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace qkv_test {

// The reason why there are no pseudo-terminals here, or "".
std::string no_terminals();

class Terminal {
 public:
  // Starts `qkv ARGUMENTS...` with standard input, output and error on a new terminal; `environment` contains
  // NAME=VALUE entries.
  explicit Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~Terminal();  // kills the process if it still runs
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const;
  // Reads output until `text` has appeared since the last call; false after 30 s or at the end of the output.
  bool wait_for(const std::string& text);
  // The same, and until the program reads single keys if it edits lines.
  bool wait_for_prompt(const std::string& prompt, bool edits);
  // Reads to the end of the output and returns the exit status, or -1 - the signal's number. Kills the program after 30
  // s without output.
  int finish();
  const std::string& shown() const { return shown_; }  // all output, as the terminal received it
  pid_t pid() const { return pid_; }
  bool echoes() const;  // whether the terminal itself echoes the input, line by line

 private:
  bool read_more();

  int leader_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;
};

}  // namespace qkv_test
