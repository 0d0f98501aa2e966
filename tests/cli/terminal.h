// SPDX-License-Identifier: Apache-2.0
// Runs the qkv program on a pseudo-terminal, as a person would.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace qkv_test {

// Why this machine has no pseudo-terminals, or "".
std::string no_terminals();

class Terminal {
 public:
  // Starts `qkv ARGUMENTS...` with standard input, output and error on a terminal of its own; `environment` holds
  // NAME=VALUE.
  explicit Terminal(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});
  ~Terminal();  // kills what still runs
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void type(const std::string& keys) const;
  // Reads what the program prints until it has printed `text` since the last call; false after 30 s or at its end.
  bool wait_for(const std::string& text);
  // The same, and until the program reads key by key if it is one that edits lines.
  bool wait_for_prompt(const std::string& prompt, bool edits);
  // Reads to the end, which must come within 30 s of the last output, or the program is killed; the exit status, or -1
  // - the signal's number.
  int finish();
  const std::string& shown() const { return shown_; }  // all of it, as the terminal got it
  pid_t pid() const { return pid_; }
  bool echoes() const;  // whether the terminal itself echoes what is typed, line by line

 private:
  bool read_more();

  int leader_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
  std::size_t seen_ = 0;
};

}  // namespace qkv_test
