// SPDX-License-Identifier: Apache-2.0
// Where the fuzz targets of readers keep the files that are read, and how several files stand in one input.
#pragma once

#include <string>
#include <string_view>

namespace qkv::test {

std::string read_all(const std::string& path);

// A folder in memory (tmpfs where there is one), of this process alone; gone when it ends.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  // Returns the path. Folders before the name must be there.
  std::string write(const std::string& name, std::string_view bytes) const;
  std::string read(const std::string& name) const { return read_all(path(name)); }

 private:
  std::string path_;
};
const Folder& folder();

// Takes what comes before the first zero byte off the front of `rest`, and that byte.
std::string_view next_part(std::string_view& rest);

// Reads each of the bytes.
void touch(const void* data, std::size_t bytes);

}  // namespace qkv::test
