// SPDX-License-Identifier: Apache-2.0
// Files that exist completely or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "os/system_error.h"

namespace qkv {

// Writes to a temporary file next to `path`; commit() syncs it to disk and atomically replaces `path`. Without commit()
// the temporary file is removed and `path` is unchanged. Every failure (a full disk, a read-only directory, a `path`
// that is a device or a directory) is a qkv::FileError. Not thread-safe.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }
  std::int64_t written() const noexcept { return written_; }  // bytes so far
  // Passes all bytes to `watcher` as they are written, in order, e.g. for a checksum. Call before the first write.
  void watch(std::function<void(const void* data, std::size_t size)> watcher) { watcher_ = std::move(watcher); }
  void commit();
  // Overwrites bytes from byte `at` on, all of which must have been written before.
  void overwrite(std::int64_t at, const void* data, std::size_t size);

 private:
  void flush();
  void write_through(const char* data, std::size_t size);

  std::string path_;       // as given by the caller, for messages
  std::string target_;     // the file to replace, symbolic links resolved
  std::string temporary_;  // empty once committed
  FileDescriptor file_;
  std::vector<char> buffer_;
  std::function<void(const void*, std::size_t)> watcher_;  // may be empty
  std::int64_t written_ = 0;
};

// Atomically replaces the file `path` with `text`.
void replace_file(const std::string& path, std::string_view text);

// The file that writing to a path replaces: symbolic links are resolved. Throws qkv::FileError if it is not a file.
std::string final_target(const std::string& path);
// A new name next to a path, PATH.PROCESS-NUMBER.tmp, for unfinished data.
std::string temporary_name(const std::string& path);

// Creates the directory and its parents; an existing directory is not an error. Throws qkv::FileError.
void make_directories(const std::string& path);

}  // namespace qkv
