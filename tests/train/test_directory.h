// SPDX-License-Identifier: Apache-2.0
// A directory of its own for a test, gone when the test is over.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace qkv {

class TestDirectory {
 public:
  TestDirectory() {
    path_ = (std::filesystem::temp_directory_path() / "qkv-test-XXXXXX").string();
    if (!mkdtemp(path_.data())) throw std::system_error(errno, std::generic_category(), path_);
  }
  ~TestDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TestDirectory(const TestDirectory&) = delete;
  TestDirectory& operator=(const TestDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace qkv
