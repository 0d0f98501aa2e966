// SPDX-License-Identifier: Apache-2.0
// A file for random-access reads. Pipes and standard input are first copied to a file.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "os/system_error.h"

namespace qkv {

// Movable; may be read by several threads at once.
class InputFile {
 public:
  // Throws qkv::FileError if the file does not exist, is not readable or is not a regular file.
  explicit InputFile(const std::string& path);
  // Copies all data from `path` (a pipe; "-" is standard input) to an unnamed file in `folder`, which is removed with
  // this object. Throws qkv::FileError.
  static InputFile spool(const std::string& path, const std::string& folder);

  const std::string& path() const noexcept { return path_; }  // "standard input" for "-"
  std::int64_t size() const noexcept { return size_; }        // when opened
  // Fills `to` from byte `at` on; returns the number of bytes read, fewer only at the end of the file.
  std::size_t read(std::int64_t at, std::span<char> to) const;

 private:
  InputFile(std::string path, int descriptor, std::int64_t size)
      : path_(std::move(path)), file_(descriptor), size_(size) {}

  std::string path_;
  FileDescriptor file_;
  std::int64_t size_ = 0;
};

// Whether `path` must be copied before reading: "-", a pipe, a socket or a device.
bool is_stream(const std::string& path);

}  // namespace qkv
