// SPDX-License-Identifier: Apache-2.0
#include "os/atomic_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <vector>

#include "os/atomic_file.h"
#include "os/file_steps.h"
#include "os/mapped_file.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

void rename_path(const std::string& from, const std::string& to) {
  file_step("rename", to);
  if (::rename(from.c_str(), to.c_str()) != 0) throw_system_error(to, "cannot be replaced", errno);
}

// The process ID in NAME.PROCESS-NUMBER.tmp, or 0.
pid_t process_of(const std::string& name) noexcept {
  const auto digits = [&](std::size_t begin, std::size_t end) {
    return begin < end && end - begin < 10 &&
           std::all_of(name.begin() + static_cast<std::ptrdiff_t>(begin),
                       name.begin() + static_cast<std::ptrdiff_t>(end), [](char c) { return c >= '0' && c <= '9'; });
  };
  if (!name.ends_with(".tmp")) return 0;
  const std::size_t end = name.size() - 4, dash = name.rfind('-');
  const std::size_t dot = dash == std::string::npos ? dash : name.rfind('.', dash);
  if (dot == std::string::npos || dot == 0 || !digits(dot + 1, dash) || !digits(dash + 1, end)) return 0;
  return static_cast<pid_t>(std::strtol(name.c_str() + dot + 1, nullptr, 10));
}

void copy_file(const std::string& from, const std::string& to) {
  const MappedFile source(from);
  AtomicFile file(to);
  file.write(source.data(), source.size());
  file.commit();
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

}  // namespace

AtomicDirectory::AtomicDirectory(const std::string& path) : target_(path) {
  for (int attempt = 0;; ++attempt) {
    temporary_ = temporary_name(target_);
    file_step("mkdir", temporary_);
    if (::mkdir(temporary_.c_str(), 0777) == 0) return;
    const int error = errno;
    if (error == EEXIST && attempt < 100) continue;
    throw_system_error(std::exchange(target_, {}), "cannot be created", error);
  }
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
}

void AtomicDirectory::commit() {
  if (temporary_.empty()) throw std::invalid_argument("[atomic directory] expected one commit; found a second");
  sync_directory(temporary_);
  const std::string folder = fs::path(target_).parent_path().string();
  if (!fs::exists(fs::symlink_status(target_))) {
    rename_path(temporary_, target_);
    temporary_.clear();
    sync_directory(folder.empty() ? "." : folder);
    return;
  }
  file_step("exchange", target_);
  if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, target_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) throw_system_error(target_, "cannot be replaced", errno);
    const std::string aside = temporary_name(target_);  // the file system does not support exchange
    rename_path(target_, aside);
    rename_path(temporary_, target_);
    temporary_ = aside;
  }
  sync_directory(folder.empty() ? "." : folder);
  remove_all(std::exchange(temporary_, {}));
}

void link_file(const std::string& from, const std::string& to) {
  const std::string target = final_target(to);
  if (same_file(from, target)) return;
  const std::string temporary = temporary_name(target);
  file_step("link", temporary);
  if (::link(from.c_str(), temporary.c_str()) != 0) {
    const bool unable = errno == EPERM || errno == EXDEV || errno == EMLINK || errno == EOPNOTSUPP || errno == ENOSYS;
    if (!unable) throw_system_error(to, "cannot be written", errno);
    return copy_file(from, target);
  }
  try {
    rename_path(temporary, target);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
}

void sync_directory(const std::string& path) {
  const FileDescriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  file_step("sync", path);
  // Some file systems cannot sync a directory and fail with EINVAL; a directory with write but not read permission
  // cannot be opened.
  if (folder.get() >= 0 && ::fsync(folder.get()) != 0 && errno != EINVAL)
    throw_system_error(path, "cannot be synced", errno);
}

void remove_all(const std::string& path) {
  // Renames first, atomically: a partly removed directory must not look like the original.
  std::string doomed = path;
  if (!is_temporary_name(fs::path(path).filename().string()) && fs::is_directory(fs::symlink_status(path))) {
    doomed = temporary_name(path);
    rename_path(path, doomed);
  }
  file_step("remove", doomed);
  std::error_code error;
  fs::remove_all(doomed, error);
  if (error) throw FileError(path, "cannot be removed: " + error.message());
}

bool is_temporary_name(const std::string& name) noexcept { return process_of(name) > 0; }

void remove_leftovers(const std::string& directory) noexcept {
  try {
    std::vector<std::string> doomed;
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
      const pid_t process = process_of(entry.path().filename().string());
      if (process > 0 && process != ::getpid() && ::kill(process, 0) != 0 && errno == ESRCH)
        doomed.push_back(entry.path().string());
    }
    for (const std::string& path : doomed) remove_all(path);
  } catch (const std::exception&) {  // leftovers are harmless
  }
}

DirectoryLock::DirectoryLock(const std::string& path)
    : path_(path), directory_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (directory_.get() >= 0 && ::flock(directory_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw FileError(path, "is in use by another training process");
}

bool DirectoryLock::stands() const noexcept {
  struct stat held, named;
  return directory_.get() >= 0 && ::fstat(directory_.get(), &held) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

}  // namespace qkv
