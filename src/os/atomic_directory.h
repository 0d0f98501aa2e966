// SPDX-License-Identifier: Apache-2.0
// Directories that are there whole or not at all, and files under a second name.
#pragma once

#include <string>

#include "os/system_error.h"

namespace qkv {

// Makes an empty directory beside `path` to write into; commit() syncs it and puts it in the place of `path` in one
// step, whether or not a directory stands there (which is then removed). The files in it must have been synced, as
// AtomicFile does. Without commit() it is removed and `path` stays as it was. Every failure is a qkv::FileError. One
// thread at a time.
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

// Makes `to` a second name of the file `from`, in one step and in the place of what stands there. A file system without
// second names (or another one than that of `from`) gets a copy instead, which takes the same step. The folder is not
// synced: sync_directory. Throws qkv::FileError.
void link_file(const std::string& from, const std::string& to);

// Waits until the names in a directory are on the disk. Throws qkv::FileError.
void sync_directory(const std::string& path);

// Removes a directory and all that is in it, or a file; nothing there is fine. Throws qkv::FileError.
void remove_all(const std::string& path);

// Removes what a process that is no longer there left unfinished in a directory: entries NAME.PROCESS-NUMBER.tmp. What
// cannot be removed stays.
void remove_leftovers(const std::string& directory) noexcept;

// Whether a file's name is that of a temporary one of AtomicFile or AtomicDirectory: NAME.PROCESS-NUMBER.tmp.
bool is_temporary_name(const std::string& name) noexcept;

// Holds a directory for this process: nobody else who asks gets it meanwhile. Gone with the object or the process.
class DirectoryLock {
 public:
  // Throws qkv::FileError if another holds it. Where the file system knows no locks, nothing is held.
  explicit DirectoryLock(const std::string& path);
  // Whether the directory still stands under its name: it may have been removed, and perhaps made again.
  bool stands() const noexcept;

 private:
  std::string path_;
  FileDescriptor directory_;
};

}  // namespace qkv
