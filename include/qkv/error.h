// SPDX-License-Identifier: Apache-2.0
// What qkv throws. Bad shapes and options are std::invalid_argument with the message
//   [where] what was expected; found what was found
// and files that cannot be read or written are qkv::FileError. Nothing else is thrown on purpose but std::bad_alloc.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace qkv {

// A file that is missing, unreadable, unwritable or not what it claims to be.
// what() is one line: "PATH: REASON" or "PATH: at byte OFFSET: REASON".
class FileError : public std::runtime_error {
 public:
  // offset < 0 means that no byte of the file is to blame (it is missing, say).
  FileError(std::string path, std::int64_t offset, const std::string& reason)
      : std::runtime_error(path + ": " + (offset >= 0 ? "at byte " + std::to_string(offset) + ": " : "") + reason),
        path_(std::move(path)),
        offset_(offset) {}
  FileError(std::string path, const std::string& reason) : FileError(std::move(path), -1, reason) {}

  const std::string& path() const noexcept { return path_; }
  std::int64_t offset() const noexcept { return offset_; }

 private:
  std::string path_;
  std::int64_t offset_;
};

}  // namespace qkv
