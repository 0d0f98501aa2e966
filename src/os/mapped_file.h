// SPDX-License-Identifier: Apache-2.0
// A whole file, mapped read-only through the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace qkv {

// Movable, not copyable; may be read by several threads at once. A file that another program shortens while it is
// mapped cannot be read safely (the system sends SIGBUS); qkv itself only replaces whole files, which is harmless.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws qkv::FileError, with the system's reason, if the file does not exist, is not readable, is not a regular file
  // (a directory, a pipe, a device) or is empty.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const noexcept { return path_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  // Allows these pages to leave this process's memory; reading them again reloads them.
  void release(std::size_t at, std::size_t size) const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace qkv
