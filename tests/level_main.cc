// SPDX-License-Identifier: Apache-2.0
// Runs the tests at the level that QKV_CPU names, and prints it. If the processor lacks the level, the program exits
// with kSkipped, which CTest reports as a skipped test.
#include <gtest/gtest.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "os/cpu_level.h"

namespace {
constexpr int kSkipped = 77;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    std::printf("Level: %s\n", std::string(qkv::cpu_level_name(qkv::cpu_level())).c_str());
  } catch (const std::invalid_argument& error) {
    std::printf("SKIPPED: %s\n", error.what());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
