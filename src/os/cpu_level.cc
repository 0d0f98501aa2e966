// SPDX-License-Identifier: Apache-2.0
#include "os/cpu_level.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace qkv {
namespace {

constexpr std::string_view kNames[] = {"portable", "avx2", "avx512", "avx512_bf16"};

#if defined(__x86_64__)

// Features that __builtin_cpu_supports does not know in some compilers are read from CPUID; whether the system saves
// the registers is checked with a feature that uses the same registers.
struct CpuId {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  CpuId(unsigned leaf, unsigned part) noexcept { __get_cpuid_count(leaf, part, &eax, &ebx, &ecx, &edx); }
};
bool bit(unsigned word, int i) noexcept { return (word >> i & 1u) != 0; }

CpuLevel highest_level() noexcept {
  const CpuId one(1, 0), more(7, 1);
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !bit(one.ecx, 29)) return CpuLevel::portable;
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512vl") ||
      !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512bw"))
    return CpuLevel::avx2;
  if (!bit(more.eax, 5) || !__builtin_cpu_supports("avx512vnni")) return CpuLevel::avx512;
  return CpuLevel::avx512_bf16;
}

#else

CpuLevel highest_level() noexcept { return CpuLevel::portable; }

#endif

CpuLevel choose() {
  const char* wanted = std::getenv("QKV_CPU");
  if (!wanted || !*wanted) return highest_level();
  std::string names;
  for (const CpuLevel level : processor_levels()) {
    const std::string_view name = cpu_level_name(level);
    if (name == wanted) return level;
    names += (names.empty() ? "" : ", ") + std::string(name);
  }
  throw std::invalid_argument("[QKV_CPU] expected a level that this processor supports (" + names + "); found '" +
                              wanted + "'");
}

}  // namespace

CpuLevel cpu_level() {
  static const CpuLevel level = choose();  // not set if choose() throws: the next call tries again
  return level;
}

std::vector<CpuLevel> processor_levels() {
  std::vector<CpuLevel> levels;
  for (int i = 0; i <= static_cast<int>(highest_level()); ++i) levels.push_back(static_cast<CpuLevel>(i));
  return levels;
}

std::string_view cpu_level_name(CpuLevel level) noexcept { return kNames[static_cast<int>(level)]; }

}  // namespace qkv
