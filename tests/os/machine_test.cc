// SPDX-License-Identifier: Apache-2.0
#include "os/machine.h"

#include <gtest/gtest.h>

#include <vector>

namespace qkv {
namespace {

TEST(Machine, MemoryFactsAgreeWithEachOther) {
  EXPECT_GT(total_memory(), 1 << 20);
  EXPECT_GT(available_memory(), 0);
  EXPECT_LE(available_memory(), total_memory());
  EXPECT_GT(resident_memory(), 0);
  EXPECT_LE(resident_memory(), peak_resident_memory() + (1 << 20));  // the two are counted at different moments
}

TEST(Machine, ThePeakRemembersWhatWasFreed) {
  constexpr std::size_t kSize = std::size_t{64} << 20;
  const std::int64_t before = resident_memory();
  {
    std::vector<char> touched(kSize);
    for (std::size_t i = 0; i < kSize; i += 4096) static_cast<volatile char&>(touched[i]) = 'x';
  }
  EXPECT_GE(peak_resident_memory(), before + static_cast<std::int64_t>(kSize) / 2);
}

TEST(Machine, HasACore) { EXPECT_GE(core_count(), 1); }

}  // namespace
}  // namespace qkv
