// SPDX-License-Identifier: Apache-2.0
// Shared by the system calls of this module: an owned descriptor, and conversion of errno to a qkv::FileError.
#pragma once

#include <unistd.h>

#include <string>
#include <system_error>
#include <utility>

#include "qkv/error.h"

namespace qkv {

// Throws "PATH: WHAT: the system's reason".
[[noreturn]] inline void throw_system_error(const std::string& path, const std::string& what, int error) {
  throw FileError(path, what + ": " + std::generic_category().message(error));
}

// Closes its descriptor; -1 is none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number = -1) noexcept : number_(number) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  FileDescriptor(FileDescriptor&& other) noexcept : number_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    reset(other.release());
    return *this;
  }

  int get() const noexcept { return number_; }
  void reset(int number = -1) noexcept {
    const int old = std::exchange(number_, number);
    if (old >= 0) ::close(old);
  }
  int release() noexcept { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace qkv
