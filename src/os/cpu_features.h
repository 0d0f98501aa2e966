// SPDX-License-Identifier: Apache-2.0
// What __builtin_cpu_supports of some compilers cannot be asked.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace qkv {

// Bits of CPUID; whether the system keeps the registers is for the caller to ask: __builtin_cpu_supports("avx2").

inline bool cpu_has_f16c() noexcept {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & (1u << 29)) != 0;
#else
  return false;
#endif
}

inline bool cpu_has_avx512_bf16() noexcept {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 5)) != 0;
#else
  return false;
#endif
}

}  // namespace qkv
