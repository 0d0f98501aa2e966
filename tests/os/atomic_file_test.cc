// SPDX-License-Identifier: Apache-2.0
#include "os/atomic_file.h"

#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>

#include "formats/scratch.h"
#include "qkv/error.h"

namespace qkv {
namespace {

TEST(AtomicFile, ReplacesOnlyOnCommit) {
  const Scratch scratch;
  const std::string path = scratch.file("a", "old");
  {
    AtomicFile file(path);
    file.write("new ");
    EXPECT_EQ(read_all(path), "old");
    file.write("text");
    EXPECT_EQ(file.written(), 8);
    file.commit();
    EXPECT_EQ(read_all(path), "new text");
    EXPECT_THROW(file.write("more"), std::invalid_argument);
    EXPECT_THROW(file.commit(), std::invalid_argument);
  }
  EXPECT_EQ(read_all(path), "new text");
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(AtomicFile, NothingChangesWithoutCommit) {
  const Scratch scratch;
  const std::string path = scratch.file("a", "old");
  {
    AtomicFile file(path);
    file.write(std::string(3'000'000, 'x'));
  }
  EXPECT_EQ(read_all(path), "old");
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(AtomicFile, KeepsTheOrderOfSmallAndLargeWrites) {
  const Scratch scratch;
  std::string wanted;
  AtomicFile file(scratch.path("a"));
  for (int i = 0; i < 40; ++i) {
    const std::string piece(static_cast<std::size_t>(i % 8 == 3 ? 1'500'000 : i * 1000),
                            static_cast<char>('a' + i % 26));
    file.write(piece);
    wanted += piece;
  }
  file.commit();
  EXPECT_TRUE(read_all(scratch.path("a")) == wanted);
}

TEST(AtomicFile, FollowsLinksAndKeepsPermissions) {
  const Scratch scratch;
  const std::string path = scratch.file("a", "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  std::filesystem::create_symlink("a", scratch.path("link"));
  replace_file(scratch.path("link"), "new");
  EXPECT_EQ(read_all(path), "new");
  EXPECT_TRUE(std::filesystem::is_symlink(scratch.path("link")));
  EXPECT_EQ(std::filesystem::status(path).permissions(), static_cast<std::filesystem::perms>(0640));
}

TEST(AtomicFile, RefusesDevicesFoldersAndMissingFolders) {
  const Scratch scratch;
  EXPECT_THROW(AtomicFile("/dev/null"), FileError);
  EXPECT_THROW(AtomicFile("/dev/full"), FileError);
  EXPECT_THROW(AtomicFile(scratch.path(".")), FileError);
  EXPECT_THROW(AtomicFile(scratch.path("none/a")), FileError);
  EXPECT_EQ(scratch.entries(), 0);
}

// A full disk, simulated by a file size limit in a child process: the write fails partway.
TEST(AtomicFile, AFailedWriteLeavesTheOldFile) {
  const Scratch scratch;
  const std::string path = scratch.file("a", "old");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit limit { 2'000'000, 2'000'000 };
    ::setrlimit(RLIMIT_FSIZE, &limit);
    int result = 1;
    try {
      replace_file(path, std::string(5'000'000, 'x'));
    } catch (const FileError& error) {
      result = std::string(error.what()).find("cannot be written: File too large") == std::string::npos ? 2 : 0;
    }
    ::_exit(result);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(read_all(path), "old");
  EXPECT_EQ(scratch.entries(), 1);
}

TEST(MakeDirectories, MakesAllAndAcceptsExistingOnes) {
  const Scratch scratch;
  make_directories(scratch.path("x/y/z"));
  make_directories(scratch.path("x/y/z"));
  EXPECT_TRUE(std::filesystem::is_directory(scratch.path("x/y/z")));
  scratch.file("plain", "text");
  EXPECT_THROW(make_directories(scratch.path("plain")), FileError);
  EXPECT_THROW(make_directories(scratch.path("plain/below")), FileError);
}

}  // namespace
}  // namespace qkv
