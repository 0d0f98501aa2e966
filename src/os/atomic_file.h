// SPDX-License-Identifier: Apache-2.0
// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "os/system_error.h"

namespace qkv {

// Writes to a temporary file beside `path`; commit() syncs it to the disk and puts it in the place of `path` in one
// step. Without commit() the temporary file is removed and whatever stood at `path` stays as it was. Every failure (a
// full disk, a read-only folder, a `path` that is a device or a folder) is a qkv::FileError. One thread at a time.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::int64_t written() const noexcept { return written_; }  // bytes so far
  void commit();

 private:
  void flush();
  void write_through(const char* data, std::size_t size);

  std::string path_;       // as the caller named it, for messages
  std::string target_;     // the file to replace, links followed
  std::string temporary_;  // empty once committed
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::int64_t written_ = 0;
};

// The whole of `text` as the file `path`, atomically.
void replace_file(const std::string& path, std::string_view text);

// Makes the directory and those above it; one that exists is fine. Throws qkv::FileError.
void make_directories(const std::string& path);

}  // namespace qkv
