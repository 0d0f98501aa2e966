// SPDX-License-Identifier: Apache-2.0
// A file that is read in parts, by place. Pipes and standard input are put aside in a file first.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "os/system_error.h"

namespace qkv {

// Movable; any number of threads may read one.
class InputFile {
 public:
  // Throws qkv::FileError if there is no such file, it may not be read or it is no regular file.
  explicit InputFile(const std::string& path);
  // All that can be read from `path` (a pipe; "-" is standard input), put into a file in `folder` that has no name and
  // so goes away with this object. Throws qkv::FileError.
  static InputFile put_aside(const std::string& path, const std::string& folder);

  const std::string& path() const noexcept { return path_; }  // "standard input" for "-"
  std::int64_t size() const noexcept { return size_; }        // when it was opened
  // Fills `to` from byte `at` on; returns how many bytes there were, fewer only where the file ends.
  std::size_t read(std::int64_t at, std::span<char> to) const;

 private:
  InputFile(std::string path, int descriptor, std::int64_t size)
      : path_(std::move(path)), file_(descriptor), size_(size) {}

  std::string path_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
};

// Whether `path` must be put aside to be read: "-", a pipe, a socket or a device.
bool is_stream(const std::string& path);

}  // namespace qkv
