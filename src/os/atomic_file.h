// SPDX-License-Identifier: Apache-2.0
// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  // All bytes pass `watcher` as they are written, in order: a checksum on the way. To be set before the first write.
  void watch(std::function<void(const void* data, std::size_t size)> watcher) { watcher_ = std::move(watcher); }
  void commit();
  // Puts bytes over ones written before, from byte `at` on, which must all be there.
  void overwrite(std::int64_t at, const void* data, std::size_t size);

 private:
  void flush();
  void write_through(const char* data, std::size_t size);

  std::string path_;       // as the caller named it, for messages
  std::string target_;     // the file to replace, links followed
  std::string temporary_;  // empty once committed
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::function<void(const void*, std::size_t)> watcher_;  // may be empty
  std::int64_t written_ = 0;
};

// The whole of `text` as the file `path`, atomically.
void replace_file(const std::string& path, std::string_view text);

// Where writing to a path ends up: the file behind a link, not the link. Throws qkv::FileError for what is no file.
std::string final_target(const std::string& path);
// A new name beside a path, PATH.PROCESS-NUMBER.tmp, for what is not finished.
std::string temporary_name(const std::string& path);

// Makes the directory and those above it; one that exists is fine. Throws qkv::FileError.
void make_directories(const std::string& path);

}  // namespace qkv
