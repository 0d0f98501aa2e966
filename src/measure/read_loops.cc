// SPDX-License-Identifier: Apache-2.0
// Loads in assembly, so that the compiler keeps loads whose values are unused, and so that no wide instruction is used
// in the rest of the program.
#include "measure/read_loops.h"

#include "os/cpu_level.h"

namespace qkv::measure {
namespace {

constexpr std::int64_t kLine = 64;

// Reads a cache line with the narrowest, universally available loads, or wider ones.
struct Narrow {
  static void line(const char* p) noexcept {
#if defined(__x86_64__)
    asm volatile("movaps (%0), %%xmm0\n movaps 16(%0), %%xmm1\n movaps 32(%0), %%xmm2\n movaps 48(%0), %%xmm3"
                 :
                 : "r"(p)
                 : "xmm0", "xmm1", "xmm2", "xmm3", "memory");
#else
    using Four = std::uint32_t __attribute__((vector_size(16)));
    for (int i = 0; i < 4; ++i) {
      Four x = reinterpret_cast<const Four*>(p)[i];
      asm volatile("" : : "m"(x) : "memory");
    }
#endif
  }
  static void end() noexcept {}
};

#if defined(__x86_64__)
struct Avx2 {
  static void line(const char* p) noexcept {
    asm volatile("vmovaps (%0), %%ymm0\n vmovaps 32(%0), %%ymm1" : : "r"(p) : "xmm0", "xmm1", "memory");
  }
  static void end() noexcept { asm volatile("vzeroupper" : : : "memory"); }
};

struct Avx512 {
  static void line(const char* p) noexcept { asm volatile("vmovaps (%0), %%zmm0" : : "r"(p) : "xmm0", "memory"); }
  static void end() noexcept { asm volatile("vzeroupper" : : : "memory"); }
};
#endif

// Streams are equal parts of the memory, read in parallel; Ahead is the prefetch distance in bytes, 0 if prefetching is
// left to the hardware.
template <class Loads, int Streams, int Ahead>
void read(const char* memory, std::int64_t bytes) noexcept {
  const std::int64_t part = bytes / Streams;
  for (std::int64_t at = 0; at < part; at += 4 * kLine) {
    for (int s = 0; s < Streams; ++s) {
      const char* p = memory + s * part + at;
      for (int line = 0; line < 4; ++line) {
        if constexpr (Ahead > 0) __builtin_prefetch(p + line * kLine + Ahead, 0, 3);
        Loads::line(p + line * kLine);
      }
    }
  }
  Loads::end();
}

template <class Loads>
void add_loops(const std::string& width, std::vector<ReadLoop>& loops) {
  loops.push_back({width + ", plain", read<Loads, 1, 0>});
  loops.push_back({width + ", prefetching 512 bytes ahead", read<Loads, 1, 512>});
  loops.push_back({width + ", prefetching 1024 bytes ahead", read<Loads, 1, 1024>});
  loops.push_back({width + ", prefetching 2048 bytes ahead", read<Loads, 1, 2048>});
  loops.push_back({width + ", prefetching 4096 bytes ahead", read<Loads, 1, 4096>});
  loops.push_back({width + ", 2 streams", read<Loads, 2, 0>});
  loops.push_back({width + ", 2 streams, prefetching 1024 bytes ahead", read<Loads, 2, 1024>});
  loops.push_back({width + ", 4 streams", read<Loads, 4, 0>});
  loops.push_back({width + ", 4 streams, prefetching 1024 bytes ahead", read<Loads, 4, 1024>});
}

}  // namespace

std::vector<ReadLoop> read_loops() {
  std::vector<ReadLoop> loops;
#if defined(__x86_64__)
  if (cpu_has(CpuLevel::avx512)) {
    add_loops<Avx512>("64-byte loads", loops);
  } else if (cpu_has(CpuLevel::avx2)) {
    add_loops<Avx2>("32-byte loads", loops);
  } else {
    add_loops<Narrow>("16-byte loads", loops);
  }
#else
  add_loops<Narrow>("16-byte loads", loops);
#endif
  return loops;
}

}  // namespace qkv::measure
