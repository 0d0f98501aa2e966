// SPDX-License-Identifier: Apache-2.0
// Loops that only read memory sequentially.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace qkv::measure {

inline constexpr std::int64_t kReadBlock = 16384;  // bytes; what a loop reads is a multiple of it

struct ReadLoop {
  std::string name;
  // Reads `bytes` (a multiple of kReadBlock) from a 64-byte aligned address.
  void (*run)(const char* memory, std::int64_t bytes) noexcept;
};

// Plain loops, loops with several prefetch distances, and loops with several streams, with the widest loads available.
std::vector<ReadLoop> read_loops();

}  // namespace qkv::measure
