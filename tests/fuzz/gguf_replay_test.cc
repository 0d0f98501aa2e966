// SPDX-License-Identifier: Apache-2.0
// The GGUF fuzz target without the fuzzer: valid files, and mutations of them from a fixed seed.
#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"
#include "fuzz/gguf_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

std::span<const std::byte> bytes_of(const std::vector<char>& text) { return std::as_bytes(std::span(text)); }

TEST(GgufFuzz, SeedsReachTheirStage) {
  for (const GgufSeed& seed : gguf_seeds())
    EXPECT_EQ(read_everything(bytes_of({seed.bytes.begin(), seed.bytes.end()})), seed.reached) << seed.name;
}

TEST(GgufFuzz, ChangedBytesAreReadOrRefused) {
  set_num_threads(1);
  constexpr std::uint64_t kInputs = 3000;
  const auto seeds = gguf_seeds();
  int counts[4] = {};
  for (std::uint64_t n = 0; n < kInputs; ++n) {
    const Random random(17, n);
    const std::string& seed = seeds[n % seeds.size()].bytes;
    std::vector<char> bytes(seed.begin(), seed.end());
    const std::uint64_t changes = 1 + random.below(0, 4);
    for (std::uint64_t i = 0; i < changes; ++i) {
      const std::uint64_t at = random.below(3 * i + 1, bytes.size());
      // Small and extreme numbers are what breaks counts and lengths.
      constexpr char kBytes[] = {0, 1, 2, 4, 8, 32, 127, -128, -1};
      bytes[at] = random.below(3 * i + 2, 2) ? kBytes[random.below(3 * i + 3, sizeof kBytes)]
                                             : static_cast<char>(random.bits(3 * i + 3));
    }
    if (random.below(90, 8) == 0) bytes.resize(random.below(91, bytes.size()));
    bytes.shrink_to_fit();
    ASSERT_NO_THROW(++counts[read_everything(bytes_of(bytes))]) << "input " << n;
  }
  for (const int count : counts) EXPECT_GT(count, 30);  // refusals at each stage, and files that are still valid
}

TEST(GgufFuzz, EmptyInputIsRefused) { EXPECT_EQ(read_everything({}), 0); }

}  // namespace
}  // namespace qkv::test
