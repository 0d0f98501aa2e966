// SPDX-License-Identifier: Apache-2.0
#include "os/machine.h"

#include <gtest/gtest.h>

#include <vector>

#include "formats/scratch.h"

namespace qkv {
namespace {

TEST(Machine, MemoryFactsAgreeWithEachOther) {
  EXPECT_GT(total_memory(), 1 << 20);
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), total_memory());
  EXPECT_GT(resident_memory(), 0);
  EXPECT_LE(resident_memory(), peak_resident_memory() + (1 << 20));  // the two are measured at different times
}

TEST(Machine, ThePeakIncludesFreedMemory) {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  const std::int64_t before = resident_memory();
  {
    std::vector<char> touched(kSize);
    for (std::size_t i = 0; i < kSize; i += 4096) static_cast<volatile char&>(touched[i]) = 'x';
  }
  EXPECT_GE(peak_resident_memory(), before + static_cast<std::int64_t>(kSize) / 2);
}

TEST(MemoryGroups, TheTightestLimitApplies) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("root/memory/a/b"));
  const std::string groups = scratch.file("groups", "9:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n");
  const auto left = [&] { return memory_left_in_groups(groups, scratch.path("root")); };
  EXPECT_EQ(left(), INT64_MAX) << "no limit is known";
  scratch.file("root/memory/memory.limit_in_bytes", "9223372036854771712\n");
  scratch.file("root/memory/memory.usage_in_bytes", "5000\n");
  EXPECT_EQ(left(), INT64_MAX) << "the value that means unlimited";
  scratch.file("root/memory/a/memory.limit_in_bytes", "10000\n");
  scratch.file("root/memory/a/memory.usage_in_bytes", "7000\n");
  EXPECT_EQ(left(), 3000);
  scratch.file("root/memory/a/memory.stat",
               "cache 9\ntotal_inactive_file 500\ntotal_active_file 200\ninactive_file 1\n");
  EXPECT_EQ(left(), 3700) << "cached files can be reclaimed";
  scratch.file("root/memory/a/b/memory.limit_in_bytes", "4000\n");
  scratch.file("root/memory/a/b/memory.usage_in_bytes", "4100\n");
  EXPECT_EQ(left(), 0);
}

TEST(MemoryGroups, OfVersionTwo) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("root/a/b"));
  const std::string groups = scratch.file("groups", "0::/a/b\n");
  const auto left = [&] { return memory_left_in_groups(groups, scratch.path("root")); };
  scratch.file("root/a/b/memory.max", "max\n");
  scratch.file("root/a/b/memory.current", "100\n");
  EXPECT_EQ(left(), INT64_MAX);
  scratch.file("root/a/memory.max", "1000\n");
  scratch.file("root/a/memory.current", "300\n");
  scratch.file("root/a/memory.stat", "anon 200\ninactive_file 60\nactive_file 30\n");
  EXPECT_EQ(left(), 790);
  scratch.file("root/a/memory.max", "many\n");
  EXPECT_EQ(left(), INT64_MAX);
  EXPECT_EQ(memory_left_in_groups(scratch.path("none"), scratch.path("root")), INT64_MAX);
}

// In a container, its own group appears at the root, while the path is the one on the host.
TEST(MemoryGroups, SeenFromInside) {
  const Scratch scratch;
  std::filesystem::create_directories(scratch.path("root"));
  const std::string groups = scratch.file("groups", "0::/somewhere/outside\n");
  scratch.file("root/memory.max", "1000\n");
  scratch.file("root/memory.current", "300\n");
  EXPECT_EQ(memory_left_in_groups(groups, scratch.path("root")), 700);
}

TEST(Machine, HasACore) { EXPECT_GE(core_count(), 1); }

}  // namespace
}  // namespace qkv
