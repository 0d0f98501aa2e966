// SPDX-License-Identifier: Apache-2.0
#include "qkv/text_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "os/atomic_file.h"
#include "qkv/error.h"
#include "scratch.h"

namespace qkv {
namespace {

TEST(SaveText, ReplacesTheFileAndLeavesNoOthers) {
  const Scratch scratch;
  const std::string path = scratch.path("page.html");
  save_text(path, "a longer text");
  save_text(path, "short");
  EXPECT_EQ(read_all(path), "short");
  EXPECT_EQ(scratch.entries(), 1);
}

// Like /dev/stdout when the output is a pipe.
TEST(SaveText, WritesIntoAPipeBehindALink) {
  const Scratch scratch;
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string link = scratch.path("link");
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(ends[1]), link);
  EXPECT_THROW(final_target(link), FileError);
  save_text(link, "text");
  char read[8] = {};
  EXPECT_EQ(::read(ends[0], read, sizeof read), 4);
  EXPECT_STREQ(read, "text");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(SaveText, RefusesAFolderByName) {
  const Scratch scratch;
  EXPECT_THROW(save_text(scratch.path("."), "text"), FileError);
  EXPECT_THROW(save_text(scratch.path("none/page.html"), "text"), FileError);
}

}  // namespace
}  // namespace qkv
