// SPDX-License-Identifier: Apache-2.0
#include "os/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

namespace qkv {
namespace {

constexpr char kStandardInput[] = "standard input";

// An unnamed file in `folder`.
int open_nameless(const std::string& folder) {
  std::string name = (folder.empty() ? "." : folder) + "/.qkv-input-XXXXXX";
  const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor < 0) throw_system_error(folder, "cannot store the data read from a stream", errno);
  ::unlink(name.c_str());
  return descriptor;
}

void write_all(int descriptor, const char* data, std::size_t size, const std::string& folder) {
  while (size > 0) {
    const ssize_t done = ::write(descriptor, data, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw_system_error(folder, "cannot store the data read from a stream", errno);
    data += done;
    size -= static_cast<std::size_t>(done);
  }
}

}  // namespace

InputFile::InputFile(const std::string& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (file_.get() < 0) throw_system_error(path, "cannot be opened", errno);
  struct stat facts {};
  if (::fstat(file_.get(), &facts) != 0) throw_system_error(path, "cannot be examined", errno);
  if (S_ISDIR(facts.st_mode)) throw FileError(path, "is a directory, not a file");
  if (!S_ISREG(facts.st_mode)) throw FileError(path, "is not a regular file");
  size_ = facts.st_size;
}

InputFile InputFile::spool(const std::string& path, const std::string& folder) {
  const bool standard = path == "-";
  const std::string name = standard ? kStandardInput : path;
  const FileDescriptor opened(standard ? -1 : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  const int from = standard ? STDIN_FILENO : opened.get();
  if (from < 0) throw_system_error(name, "cannot be opened", errno);
  InputFile aside(name, open_nameless(folder), 0);
  std::vector<char> buffer(std::size_t{1} << 20);
  for (;;) {
    const ssize_t count = ::read(from, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(name, "cannot be read", errno);
    if (count == 0) return aside;
    write_all(aside.file_.get(), buffer.data(), static_cast<std::size_t>(count), folder);
    aside.size_ += count;
  }
}

std::size_t InputFile::read(std::int64_t at, std::span<char> to) const {
  std::size_t done = 0;
  while (done < to.size()) {
    const ssize_t count =
        ::pread(file_.get(), to.data() + done, to.size() - done, static_cast<off_t>(at) + static_cast<off_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw_system_error(path_, "cannot be read", errno);
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

bool is_stream(const std::string& path) {
  if (path == "-") return true;
  struct stat facts {};
  return ::stat(path.c_str(), &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode);
}

}  // namespace qkv
