// SPDX-License-Identifier: Apache-2.0
// Runs the tests with the kernel set that QKV_KERNELS names, and prints its name. If the processor lacks it, the
// program exits with kSkipped, which CTest reports as a skipped test.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/kernels.h"
#include "qkv/threads.h"

namespace {
constexpr int kSkipped = 77;
}

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const char* forced = std::getenv("QKV_KERNELS");
  qkv::set_num_threads(1);  // most problems here are tiny; thread tests set their own count
  try {
    const std::string used(qkv::kernels().name);
    std::printf("Kernels: %s%s\n", used.c_str(), forced ? " (forced)" : "");
    if (forced && used != forced) {
      std::printf("FAILED: QKV_KERNELS=%s had no effect\n", forced);
      return 1;
    }
  } catch (const std::invalid_argument& error) {
    std::printf("SKIPPED: %s\n", error.what());
    return kSkipped;
  }
  return RUN_ALL_TESTS();
}
