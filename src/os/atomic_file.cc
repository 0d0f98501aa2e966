// SPDX-License-Identifier: Apache-2.0
#include "os/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <stdexcept>

#include "os/atomic_directory.h"
#include "os/file_steps.h"

namespace qkv {
namespace {

constexpr std::size_t kBufferSize = 1 << 20;
constexpr std::size_t kLargestWrite = std::size_t{1} << 30;  // a system call writes at most 2 GiB

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

std::string temporary_name(const std::string& path) {
  static std::atomic<unsigned> counter{0};
  return path + "." + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
}

std::string final_target(const std::string& path) {
  struct stat facts {};  // `path` itself: /dev/stdout may lead to a pipe, whose path canonical() cannot find
  if (::stat(path.c_str(), &facts) == 0) {
    if (S_ISDIR(facts.st_mode)) throw FileError(path, "is a directory, not a file");
    if (!S_ISREG(facts.st_mode)) throw FileError(path, "is not a regular file and will not be replaced");
  }
  std::error_code error;
  const std::filesystem::path real = std::filesystem::canonical(path, error);
  return error ? path : real.string();  // does not exist yet
}

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(final_target(path)) {
  buffer_.reserve(kBufferSize);
  for (int attempt = 0;; ++attempt) {
    temporary_ = temporary_name(target_);
    file_step("create", temporary_);
    file_.reset(::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file_.get() >= 0) break;
    const int error = errno;
    if (error == EEXIST && attempt < 100) continue;  // left behind by an earlier process with the same ID
    throw_system_error(path_, "cannot be written", error);
  }
  struct stat facts {};
  // Copies the permissions of the file being replaced; failure is ignored.
  if (::stat(target_.c_str(), &facts) == 0 && ::fchmod(file_.get(), facts.st_mode & 07777) != 0) errno = 0;
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write_through(const char* data, std::size_t size) {
  const std::size_t largest = file_steps_watched() ? std::max<std::size_t>(1, (size + 1) / 2) : kLargestWrite;
  while (size > 0) {
    file_step("write", path_);
    const ssize_t done = ::write(file_.get(), data, std::min(size, largest));
    if (done < 0) {
      if (errno == EINTR) continue;
      throw_system_error(path_, "cannot be written", errno);
    }
    data += done;
    size -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::flush() {
  write_through(buffer_.data(), buffer_.size());
  buffer_.clear();
}

void AtomicFile::write(const void* data, std::size_t size) {
  if (temporary_.empty())
    throw std::invalid_argument("[atomic file] expected write before commit; found write after commit");
  if (size == 0) return;
  if (watcher_) watcher_(data, size);
  const auto* bytes = static_cast<const char*>(data);
  if (buffer_.size() + size > kBufferSize) flush();
  if (size >= kBufferSize)
    write_through(bytes, size);
  else
    buffer_.insert(buffer_.end(), bytes, bytes + size);
  written_ += static_cast<std::int64_t>(size);
}

void AtomicFile::overwrite(std::int64_t at, const void* data, std::size_t size) {
  if (temporary_.empty() || at < 0 || at + static_cast<std::int64_t>(size) > written_)
    throw std::invalid_argument("[atomic file] expected bytes written before; found " + std::to_string(at));
  flush();
  const auto* bytes = static_cast<const char*>(data);
  while (size > 0) {
    file_step("write", path_);
    const ssize_t done = ::pwrite(file_.get(), bytes, std::min(size, kLargestWrite), static_cast<off_t>(at));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system_error(path_, "cannot be written", errno);
    bytes += done;
    at += done;
    size -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  if (temporary_.empty()) throw std::invalid_argument("[atomic file] expected one commit; found a second");
  flush();
  file_step("sync", path_);
  if (::fsync(file_.get()) != 0) throw_system_error(path_, "cannot be synced", errno);
  if (::close(file_.release()) != 0) throw_system_error(path_, "cannot be written", errno);
  file_step("rename", path_);
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) throw_system_error(path_, "cannot be replaced", errno);
  temporary_.clear();
  const std::string folder = folder_of(target_);
  // The parent of an AtomicDirectory is synced on its commit.
  if (!is_temporary_name(std::filesystem::path(folder).filename().string())) sync_directory(folder);
}

void replace_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

void make_directories(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return;
  file_step("mkdir", path);
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error)) error = std::make_error_code(std::errc::not_a_directory);
  if (error) throw FileError(path, "cannot be created: " + error.message());
}

}  // namespace qkv
