// SPDX-License-Identifier: Apache-2.0
// Reads lines from a terminal or a pipe.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace qkv::cli {

// Whether this build has line editing (libedit).
bool has_line_editing() noexcept;

// Reads standard input line by line. If input and output are a terminal with cursor movement and the build has
// libedit, lines can be edited (UTF-8) and previous ones recalled. Ctrl-C at the prompt ends the process and restores
// the terminal.
class LineReader {
 public:
  explicit LineReader(const char* prompt);  // printed before each line if input is a terminal
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  std::optional<std::string> next();  // without line ending; nothing at end of input; throws qkv::FileError
  bool edits() const noexcept { return editor_ != nullptr; }
  void remember(const std::string& line);  // adds a line to the history

 private:
  struct Editor;
  const char* prompt_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace qkv::cli
