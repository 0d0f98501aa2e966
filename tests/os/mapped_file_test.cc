// SPDX-License-Identifier: Apache-2.0
#include "os/mapped_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <utility>

#include "formats/scratch.h"
#include "qkv/error.h"

namespace qkv {
namespace {

using testing::HasSubstr;

std::string error_of(const std::string& path) {
  try {
    MappedFile file(path);
  } catch (const FileError& error) {
    return error.what();
  }
  return "no error";
}

TEST(MappedFile, ContainsTheBytes) {
  const Scratch scratch;
  const std::string content("a\0b\xff", 4);
  const MappedFile file(scratch.file("a", content));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(file.data()), file.size()), content);
  EXPECT_EQ(file.bytes().size(), 4u);
}

TEST(MappedFile, MovesAndOutlivesItsName) {
  const Scratch scratch;
  MappedFile file(scratch.file("a", "old"));
  scratch.file("b", "new");
  std::filesystem::rename(scratch.path("b"), scratch.path("a"));
  MappedFile other(std::move(file));
  EXPECT_EQ(file.size(), 0u);  // NOLINT: the contents of a moved-from file are part of its contract
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), other.size()), "old");
  other = MappedFile(scratch.path("a"));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(other.data()), other.size()), "new");
}

TEST(MappedFile, RefusesAllButRegularFiles) {
  const Scratch scratch;
  EXPECT_THAT(error_of(scratch.path("none")), HasSubstr("none: cannot be opened: No such file or directory"));
  EXPECT_THAT(error_of(scratch.path(".")), HasSubstr("is a directory"));
  EXPECT_THAT(error_of(scratch.file("empty", "")), HasSubstr("is empty"));
  EXPECT_THAT(error_of("/dev/zero"), HasSubstr("not a regular file"));
  const std::string pipe = scratch.path("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of(pipe), HasSubstr("not a regular file"));  // and does not block waiting for a writer
}

// The rest of the last page reads as zeros; sanitizer builds must detect such reads.
TEST(MappedFile, AddressSanitizerKnowsItsEnd) {
#if defined(__SANITIZE_ADDRESS__)
  const Scratch scratch;
  { const MappedFile gone(scratch.file("a", "abcdefghijk")); }
  const MappedFile file(scratch.path("a"));
  volatile std::byte last = file.data()[10];
  static_cast<void>(last);
  EXPECT_DEATH(last = file.data()[11], "AddressSanitizer");
#else
  GTEST_SKIP() << "this build has no AddressSanitizer";
#endif
}

}  // namespace
}  // namespace qkv
