// SPDX-License-Identifier: Apache-2.0
// A new folder for a test's files: in memory if possible, since training runs sync often and disks are slow.
#pragma once

#include <sys/statvfs.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace qkv::test {

// PREFIX and six characters in /dev/shm, or with the other temporary files if that is full or not writable.
inline std::string make_memory_folder(const std::string& prefix) {
  constexpr std::uint64_t kSpace = std::uint64_t{256} << 20;
  struct statvfs found {};
  if (statvfs("/dev/shm", &found) == 0 && std::uint64_t{found.f_bavail} * found.f_frsize >= kSpace) {
    std::string path = "/dev/shm/" + prefix + "XXXXXX";
    if (mkdtemp(path.data())) return path;
  }
  std::string path = (std::filesystem::temp_directory_path() / (prefix + "XXXXXX")).string();
  if (!mkdtemp(path.data())) throw std::system_error(errno, std::generic_category(), path);
  return path;
}

}  // namespace qkv::test
