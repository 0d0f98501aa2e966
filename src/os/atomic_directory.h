// SPDX-License-Identifier: Apache-2.0
// Directories that exist completely or not at all, and hard links to files.
#pragma once

#include <string>

#include "os/system_error.h"

namespace qkv {

// Creates an empty directory next to `path` to write into; commit() syncs it and atomically replaces `path`, whether or
// not a directory exists there (which is then removed). The files in it must have been synced, as by AtomicFile.
// Without commit() it is removed and `path` is unchanged. Every failure is a qkv::FileError. Not thread-safe.
class AtomicDirectory {
 public:
  explicit AtomicDirectory(const std::string& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  const std::string& path() const noexcept { return temporary_; }  // empty once committed
  void commit();

 private:
  std::string target_, temporary_;
};

// Makes `to` a hard link to the file `from`, atomically replacing an existing file. If the file system does not support
// hard links, or differs from that of `from`, `to` becomes a copy, also atomically. The directory is not synced; see
// sync_directory. Throws qkv::FileError.
void link_file(const std::string& from, const std::string& to);

// Waits until the names in a directory are on disk. Throws qkv::FileError.
void sync_directory(const std::string& path);

// Removes a directory with its contents, or a file; a missing path is not an error. Throws qkv::FileError.
void remove_all(const std::string& path);

// Removes unfinished entries (NAME.PROCESS-NUMBER.tmp) that processes which no longer exist left in a directory.
// Entries that cannot be removed stay.
void remove_leftovers(const std::string& directory) noexcept;

// Whether a file name is that of a temporary of AtomicFile or AtomicDirectory: NAME.PROCESS-NUMBER.tmp.
bool is_temporary_name(const std::string& name) noexcept;

// Locks a directory for this process. Released with the object or the process.
class DirectoryLock {
 public:
  // Throws qkv::FileError if another process holds the lock. On file systems without locks, nothing is locked.
  explicit DirectoryLock(const std::string& path);
  // Whether the directory still exists under its name: it may have been removed, and perhaps created again.
  bool stands() const noexcept;

 private:
  std::string path_;
  FileDescriptor directory_;
};

}  // namespace qkv
