// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: number i of stream (seed, stream) is a pure function of the three, so any thread can
// generate any of them in any order. Philox 4x32-10, Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC
// 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace qkv {

class Random {
 public:
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : seed_(seed), stream_(stream) {}

  // Four 32-bit numbers for counter i.
  std::array<std::uint32_t, 4> block(std::uint64_t i) const noexcept {
    std::uint32_t c0 = static_cast<std::uint32_t>(i), c1 = static_cast<std::uint32_t>(i >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream_), c3 = static_cast<std::uint32_t>(stream_ >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(seed_), k1 = static_cast<std::uint32_t>(seed_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }

  std::uint64_t bits(std::uint64_t i) const noexcept {
    const auto b = block(i);
    return std::uint64_t{b[0]} << 32 | b[1];
  }
  // Uniform in [0, 1), 53 bits.
  double uniform(std::uint64_t i) const noexcept { return static_cast<double>(bits(i) >> 11) * 0x1p-53; }
  // Uniform in [0, n), n > 0; the bias is below n / 2^64.
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const noexcept {
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(bits(i)) * n) >> 64);
  }
  // Standard normal (Box-Muller).
  double normal(std::uint64_t i) const noexcept {
    const auto b = block(i);
    const double u = (static_cast<double>(std::uint64_t{b[0]} << 21 | b[1] >> 11) + 0.5) * 0x1p-53;
    const double v = static_cast<double>(std::uint64_t{b[2]} << 21 | b[3] >> 11) * 0x1p-53;
    return std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * v);
  }

 private:
  std::uint64_t seed_, stream_;
};

}  // namespace qkv
