// SPDX-License-Identifier: Apache-2.0
// Loops of multiply-adds over registers, one for each instruction set.
#pragma once

#include <cstdint>
#include <vector>

namespace qkv::measure {

struct PeakLoop {
  const char* instructions;
  void (*run)(std::int64_t rounds) noexcept;  // rounds > 0
  std::int64_t flops_per_round;
};

// Those that this processor can run, the widest first.
std::vector<PeakLoop> peak_loops();

}  // namespace qkv::measure
