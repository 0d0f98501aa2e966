// SPDX-License-Identifier: Apache-2.0
// Input lines of previous conversations, in a file that only its owner can read.
#pragma once

#include <string>
#include <vector>

namespace qkv::cli {

// $XDG_STATE_HOME/qkv/chat_history, or ~/.local/state/qkv/chat_history: one line per entry, oldest first; at most
// 1000 lines and 256 KiB, each line at most 8 KiB. Its mode is 0600, and it is replaced atomically. If it cannot be
// read or written, one message goes to standard error and the conversation continues without it.
class ChatHistory {
 public:
  explicit ChatHistory(bool kept);
  const std::vector<std::string>& lines() const noexcept { return lines_; }  // as of the start
  // Appends a line, after lines that other processes have added since.
  void add(const std::string& line);

 private:
  void give_up(const std::string& reason);

  std::string path_;  // empty: no history
  std::vector<std::string> lines_;
};

}  // namespace qkv::cli
