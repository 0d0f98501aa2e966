// SPDX-License-Identifier: Apache-2.0
// Loops of register-only multiply-adds, one per instruction set and element type.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "qkv/tensor.h"

namespace qkv::measure {

struct PeakLoop {
  const char* kernels;                        // the kernel set that uses these instructions
  DType dtype;                                // f32 or bf16
  void (*run)(std::int64_t rounds) noexcept;  // rounds > 0
  std::int64_t flops_per_round;
  std::int64_t multiply_adds_per_round;  // instructions; a multiplication and an addition count as one together
};

// The loops that this processor can run, fastest first.
std::vector<PeakLoop> peak_loops();

// The loop that measures the peak of a kernel set ("" is the best available) for f32 or bf16; a set without bf16
// products multiplies bf16 as f32. Throws std::invalid_argument if the set is unknown or not supported by this
// processor, or for other types.
PeakLoop peak_loop(DType dtype, std::string_view kernels);

}  // namespace qkv::measure
