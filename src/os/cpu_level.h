// SPDX-License-Identifier: Apache-2.0
// Which instructions the program may use. Only this module queries the processor: kernels, matrix products (oneDNN
// included), bf16 as compute dtype, measured peaks and the memory estimate all follow cpu_level().
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace qkv {

// Each level includes the preceding ones.
enum class CpuLevel : std::uint8_t {
  portable,    // the compiler's baseline: SSE2, or NEON
  avx2,        // AVX2, FMA, F16C
  avx512,      // AVX-512 F, VL, DQ, BW
  avx512_bf16  // AVX512_BF16, AVX512_VNNI; AMX is never used (docs/decisions/products_with_fixed_bits.md)
};

// The level in use: that of the environment variable QKV_CPU at the first call, else the highest of this processor.
// Throws std::invalid_argument if QKV_CPU names a level that is unknown or not supported by this processor.
CpuLevel cpu_level();
inline bool cpu_has(CpuLevel level) { return cpu_level() >= level; }

std::vector<CpuLevel> processor_levels();                  // of this processor, regardless of QKV_CPU; lowest first
std::string_view cpu_level_name(CpuLevel level) noexcept;  // as in QKV_CPU

}  // namespace qkv
