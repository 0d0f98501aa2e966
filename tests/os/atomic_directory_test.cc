// SPDX-License-Identifier: Apache-2.0
#include "os/atomic_directory.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include "formats/scratch.h"
#include "memory_folder.h"
#include "os/atomic_file.h"
#include "qkv/error.h"

namespace qkv {
namespace {

namespace fs = std::filesystem;

TEST(AtomicDirectory, AppearsOnlyOnCommit) {
  const Scratch scratch;
  {
    AtomicDirectory directory(scratch.path("d"));
    replace_file(directory.path() + "/a", "text");
    EXPECT_FALSE(fs::exists(scratch.path("d")));
    directory.commit();
    EXPECT_THROW(directory.commit(), std::invalid_argument);
  }
  EXPECT_EQ(read_all(scratch.path("d/a")), "text");
  {
    AtomicDirectory directory(scratch.path("e"));
    replace_file(directory.path() + "/a", "text");
  }
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(AtomicDirectory, ReplacesAnotherAtomically) {
  const Scratch scratch;
  fs::create_directories(scratch.path("d/deep"));
  scratch.file("d/old", "old");
  AtomicDirectory directory(scratch.path("d"));
  replace_file(directory.path() + "/new", "new");
  EXPECT_EQ(read_all(scratch.path("d/old")), "old");
  directory.commit();
  EXPECT_EQ(read_all(scratch.path("d/new")), "new");
  EXPECT_FALSE(fs::exists(scratch.path("d/old")));
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(AtomicDirectory, RefusesAMissingParent) {
  const Scratch scratch;
  EXPECT_THROW(AtomicDirectory(scratch.path("none/d")), FileError);
  EXPECT_EQ(scratch.entries(), 0);
}

TEST(LinkFile, AddsASecondNameAndReplaces) {
  const Scratch scratch;
  const std::string a = scratch.file("a", "new"), b = scratch.file("b", "old");
  link_file(a, b);
  EXPECT_EQ(read_all(b), "new");
  EXPECT_TRUE(fs::equivalent(a, b));
  link_file(a, b);
  EXPECT_EQ(fs::hard_link_count(a), 2u);
  EXPECT_EQ(scratch.entries(), 2);
  EXPECT_THROW(link_file(scratch.path("none"), b), FileError);
  EXPECT_THROW(link_file(a, scratch.path("none/b")), FileError);
  EXPECT_EQ(read_all(b), "new");
}

TEST(LinkFile, CopiesToAnotherFileSystem) {
  const Scratch scratch;
  const std::string other = test::make_memory_folder("qkv-test-");
  struct stat here {
  }, there{};
  ASSERT_EQ(::stat(scratch.path(".").c_str(), &here) | ::stat(other.c_str(), &there), 0);
  if (here.st_dev == there.st_dev) {
    fs::remove_all(other);
    GTEST_SKIP() << "/dev/shm is not a writable second file system";
  }
  link_file(scratch.file("a", "text"), other + "/b");
  EXPECT_EQ(read_all(other + "/b"), "text");
  fs::remove_all(other);
}

TEST(RemoveAll, RemovesFilesAndDirectories) {
  const Scratch scratch;
  fs::create_directories(scratch.path("d/e"));
  scratch.file("d/e/f", "x");
  remove_all(scratch.path("d"));
  remove_all(scratch.file("f", "x"));
  remove_all(scratch.path("none"));
  EXPECT_EQ(scratch.entries(), 0);
}

TEST(Leftovers, OfDeadProcessesAreRemovedAndNothingElse) {
  const Scratch scratch;
  const std::string dead = ".8388607-3.tmp";  // process IDs are below 2^22
  fs::create_directories(scratch.path("step-000001" + dead));
  scratch.file("step-000001" + dead + "/a", "x");
  scratch.file("model" + dead, "x");
  const std::string own = scratch.file("model." + std::to_string(::getpid()) + "-0.tmp", "x");
  const std::string living = scratch.file("model." + std::to_string(::getppid()) + "-0.tmp", "x");
  for (const char* name : {"notes.tmp", "a.1-2", "-3.tmp", ".8388607-3.tmp", "b.x-3.tmp", "c.8388607-.tmp"})
    scratch.file(name, "x");
  remove_leftovers(scratch.path(""));
  EXPECT_FALSE(fs::exists(scratch.path("step-000001" + dead)));
  EXPECT_FALSE(fs::exists(scratch.path("model" + dead)));
  EXPECT_TRUE(fs::exists(own) && fs::exists(living));
  EXPECT_EQ(scratch.entries(), 8);
  remove_leftovers(scratch.path("none"));
}

TEST(DirectoryLock, IsHeldForItsLifetime) {
  const Scratch scratch;
  {
    const DirectoryLock first(scratch.path(""));
    EXPECT_THROW(DirectoryLock(scratch.path("")), FileError);
  }
  EXPECT_NO_THROW(DirectoryLock(scratch.path("")));
}

}  // namespace
}  // namespace qkv
