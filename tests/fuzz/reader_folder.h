// SPDX-License-Identifier: Apache-2.0
// The folder in which the fuzz targets of readers write their files, and how one input encodes several files.
#pragma once

#include <string>
#include <string_view>

namespace qkv::test {

std::string read_all(const std::string& path);

// A folder in memory (tmpfs if there is one), private to this process and removed when it ends.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  // Returns the path. Parent folders must exist.
  std::string write(const std::string& name, std::string_view bytes) const;
  std::string read(const std::string& name) const { return read_all(path(name)); }

 private:
  std::string path_;
};
const Folder& folder();

// Removes everything up to and including the first zero byte from `rest`; returns the part before that byte.
std::string_view next_part(std::string_view& rest);

// Reads each of the bytes.
void touch(const void* data, std::size_t bytes);

}  // namespace qkv::test
