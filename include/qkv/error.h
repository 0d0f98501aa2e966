// SPDX-License-Identifier: Apache-2.0
// Exceptions. Bad shapes and options throw std::invalid_argument with the message
//   [where] expected ...; found ...
// Files that cannot be read or written throw qkv::FileError, and NaN or infinity in a result NonFiniteError. The only
// other exception thrown on purpose is std::bad_alloc.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace qkv {

// A missing, unreadable, unwritable or malformed file.
// what() is one line: "PATH: REASON" or "PATH: at byte OFFSET: REASON".
class FileError : public std::runtime_error {
 public:
  // offset < 0: the error is not at a particular byte (e.g. the file is missing).
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

// NaN or infinity where there must be numbers: a loss, logits; or a number that the type asked for cannot hold. The
// message names the parameter or the cache that is to blame, where one is.
class NonFiniteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace qkv
