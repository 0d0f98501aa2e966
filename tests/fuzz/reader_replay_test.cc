// SPDX-License-Identifier: Apache-2.0
// The fuzz targets of readers without the fuzzer: valid files, and mutations of them from a fixed seed.
#include <gtest/gtest.h>

#include "core/random.h"
#include "fuzz/reader_case.h"
#include "qkv/threads.h"

namespace qkv::test {
namespace {

TEST(ReaderFuzz, SeedsAreValidAndChangedOnesAreReadOrRefused) {
  set_num_threads(1);
  constexpr std::uint64_t kInputs = 150;
  for (const auto& [reader, parts] : readers()) {
    const std::vector<std::string> seeds = parts.seeds();
    for (const std::string& seed : seeds)
      EXPECT_TRUE(read_bytes(reader, seed)) << reader << ": " << seed.substr(0, 200);
    int accepted = 0;
    for (std::uint64_t n = 0; n < kInputs; ++n) {
      const Random random(31, n);
      std::string bytes = seeds[n % seeds.size()];
      const std::uint64_t changes = 1 + random.below(0, 3);
      for (std::uint64_t i = 0; i < changes; ++i)
        bytes[random.below(2 * i + 1, std::min<std::uint64_t>(bytes.size(), 600))] =
            static_cast<char>(random.bits(2 * i + 2));
      if (random.below(90, 8) == 0) bytes.resize(random.below(91, bytes.size()));
      ASSERT_NO_THROW(accepted += read_bytes(reader, bytes)) << reader << " input " << n;
    }
    EXPECT_LT(accepted, static_cast<int>(kInputs)) << reader;
    EXPECT_FALSE(read_bytes(reader, "")) << reader;
  }
}

}  // namespace
}  // namespace qkv::test
