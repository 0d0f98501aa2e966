// SPDX-License-Identifier: Apache-2.0
#include "os/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "os/system_error.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define QKV_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(QKV_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace qkv {
namespace {

// Bytes of the last page past the end of the file read as zeros, so that out-of-bounds reads go unnoticed; lets
// AddressSanitizer detect them.
void guard_end([[maybe_unused]] const std::byte* data, [[maybe_unused]] std::size_t size, [[maybe_unused]] bool on) {
#if defined(ASAN_POISON_MEMORY_REGION)
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t rest = (page - size % page) % page;
  if (on)
    ASAN_POISON_MEMORY_REGION(data + size, rest);
  else
    ASAN_UNPOISON_MEMORY_REGION(data, size + rest);
#endif
}

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  // O_NONBLOCK: opening a pipe without a writer must not block before we can reject it.
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw_system_error(path, "cannot be opened", errno);
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) throw_system_error(path, "cannot be examined", errno);
  if (S_ISDIR(facts.st_mode)) throw FileError(path, "is a directory, not a file");
  if (!S_ISREG(facts.st_mode)) throw FileError(path, "is not a regular file");
  if (facts.st_size == 0) throw FileError(path, "is empty");
  const auto size = static_cast<std::size_t>(facts.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw_system_error(path, "cannot be mapped", errno);
  data_ = static_cast<const std::byte*>(data);
  size_ = size;
  guard_end(data_, size_, true);
}

MappedFile::~MappedFile() {
  if (!data_) return;
  guard_end(data_, size_, false);
  ::munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::release(std::size_t at, std::size_t size) const noexcept {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t begin = (at + page - 1) / page * page, end = (at + size) / page * page;
  if (begin >= end || end > size_) return;
  // If this fails, the system can still reclaim the memory.
  static_cast<void>(::madvise(const_cast<std::byte*>(data_) + begin, end - begin, MADV_DONTNEED));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace qkv
