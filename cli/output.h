// SPDX-License-Identifier: Apache-2.0
// The errors of the command line, and the only ways to standard output and standard error. Files that define no options
// include this instead of cli.h, which takes long to compile.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace qkv::cli {

// The user asked for something that makes no sense: exit status 2, and the line points to --help.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Standard output could not be written (full disk, closed stream): exit status 1.
class OutputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The reader of standard output is gone (`qkv ... | head -1`): no message, and the process ends by SIGPIPE.
class ReaderGone : public OutputError {
 public:
  using OutputError::OutputError;
};

// "1 file", "2 files".
std::string counted(std::int64_t count, std::string_view noun);
// Writes all of the text to standard output, unbuffered; throws OutputError, or ReaderGone.
void print(std::string_view text);
// Writes to standard error; failures are ignored.
void print_error(std::string_view text) noexcept;
bool input_is_terminal() noexcept;
bool output_is_terminal() noexcept;
bool error_is_terminal() noexcept;

}  // namespace qkv::cli
