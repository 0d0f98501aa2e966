// SPDX-License-Identifier: Apache-2.0
// Lines that a person types or a pipe delivers.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace qkv::cli {

// Whether this build edits lines (libedit).
bool has_line_editing() noexcept;

// Reads standard input line by line. Where input and output are a terminal that can move its cursor, and the build has
// libedit, lines are edited in place, in UTF-8, and former ones are recalled. Ctrl-C at the prompt ends the process,
// with the terminal as it was.
class LineReader {
 public:
  explicit LineReader(const char* prompt);  // printed before each line where input is a terminal
  ~LineReader();
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  std::optional<std::string> next();  // without its end; nothing at the end of input; throws qkv::FileError
  bool edits() const noexcept { return editor_ != nullptr; }
  void remember(const std::string& line);  // to be recalled

 private:
  struct Editor;
  const char* prompt_;
  std::unique_ptr<Editor> editor_;
};

}  // namespace qkv::cli
