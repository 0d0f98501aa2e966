// SPDX-License-Identifier: Apache-2.0
#include "qkv/text_file.h"

#include <gtest/gtest.h>

#include "qkv/error.h"
#include "scratch.h"

namespace qkv {
namespace {

TEST(SaveText, ReplacesTheWholeAndLeavesNothingBeside) {
  const Scratch scratch;
  const std::string path = scratch.path("page.html");
  save_text(path, "a longer text");
  save_text(path, "short");
  EXPECT_EQ(read_all(path), "short");
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(SaveText, RefusesAFolderByName) {
  const Scratch scratch;
  EXPECT_THROW(save_text(scratch.path("."), "text"), FileError);
  EXPECT_THROW(save_text(scratch.path("none/page.html"), "text"), FileError);
}

}  // namespace
}  // namespace qkv
