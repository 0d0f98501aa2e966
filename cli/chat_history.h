// SPDX-License-Identifier: Apache-2.0
// The lines typed in former conversations, in a file that only its owner can read.
#pragma once

#include <string>
#include <vector>

namespace qkv::cli {

// $XDG_STATE_HOME/qkv/chat_history, or ~/.local/state/qkv/chat_history: a line per entry, the oldest first; at most
// 1000 lines and 256 KiB, each of at most 8 KiB. Its mode is 0600, and it is replaced atomically. When it cannot be
// read or written, standard error says so once, and the conversation continues without it.
class ChatHistory {
 public:
  explicit ChatHistory(bool kept);
  const std::vector<std::string>& lines() const noexcept { return lines_; }  // as they were at the start
  // Adds a line, after those that other processes added since.
  void add(const std::string& line);

 private:
  void give_up(const std::string& reason);

  std::string path_;  // empty: not kept
  std::vector<std::string> lines_;
};

}  // namespace qkv::cli
