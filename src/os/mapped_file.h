// SPDX-License-Identifier: Apache-2.0
// A whole file, read-only, in memory by way of the page cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace qkv {

// Movable, not copyable; any number of threads may read one. A file that another program shortens while it is mapped
// cannot be read safely (the system sends SIGBUS); qkv itself only ever replaces files whole, which is harmless.
class MappedFile {
 public:
  MappedFile() = default;
  // Throws qkv::FileError, with the system's reason, if there is no such file or it may not be read, and for what is
  // no regular file (a directory, a pipe, a device) and for an empty one.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const noexcept { return path_; }
  const std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }
  std::span<const std::byte> bytes() const noexcept { return {data_, size_}; }
  // The pages of these bytes need not stay in this process's memory; reading them again brings them back.
  void release(std::size_t at, std::size_t size) const noexcept;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace qkv
