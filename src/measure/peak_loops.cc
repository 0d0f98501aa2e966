// SPDX-License-Identifier: Apache-2.0
// Twelve independent sums hide the latency of a multiply-add (4 to 6 cycles, two per cycle). Written in assembly, since
// compilers move the sums to memory or optimize them away, and so that no wider instruction is used in the rest of the
// program.
#include "measure/peak_loops.h"

#include <stdexcept>
#include <string>

#include "os/cpu_level.h"

namespace qkv::measure {
namespace {

constexpr int kSums = 12;

#if defined(__x86_64__)

#define QKV_TWELVE(instruction)                                                                         \
  instruction("1") instruction("2") instruction("3") instruction("4") instruction("5") instruction("6") \
      instruction("7") instruction("8") instruction("9") instruction("10") instruction("11") instruction("12")
#define QKV_ZERO(n) "xorps %%xmm" n ", %%xmm" n "\n"
#define QKV_MULTIPLY(n) "mulps %%xmm0, %%xmm" n "\n"
#define QKV_ADD(n) "addps %%xmm0, %%xmm" n "\n"
#define QKV_AVX2(n) "vfmadd231ps %%ymm0, %%ymm0, %%ymm" n "\n"
#define QKV_AVX512(n) "vfmadd231ps %%zmm0, %%zmm0, %%zmm" n "\n"
#define QKV_AVX512_BF16(n) "vdpbf16ps %%zmm0, %%zmm0, %%zmm" n "\n"
#define QKV_CLOBBERS \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "cc"
#define QKV_LOOP(body, end)                                                                      \
  asm volatile("xorps %%xmm0, %%xmm0\n" QKV_TWELVE(QKV_ZERO) "1:\n" body "dec %0\n jnz 1b\n" end \
               : "+r"(rounds)                                                                    \
               :                                                                                 \
               : QKV_CLOBBERS)

void portable_loop(std::int64_t rounds) noexcept { QKV_LOOP(QKV_TWELVE(QKV_MULTIPLY) QKV_TWELVE(QKV_ADD), ""); }
void avx2_loop(std::int64_t rounds) noexcept { QKV_LOOP(QKV_TWELVE(QKV_AVX2), "vzeroupper\n"); }
void avx512_loop(std::int64_t rounds) noexcept { QKV_LOOP(QKV_TWELVE(QKV_AVX512), "vzeroupper\n"); }
void avx512_bf16_loop(std::int64_t rounds) noexcept { QKV_LOOP(QKV_TWELVE(QKV_AVX512_BF16), "vzeroupper\n"); }

#else

using Four = float __attribute__((vector_size(16)));

void portable_loop(std::int64_t rounds) noexcept {
  Four sums[kSums] = {};   // [kSums]
  volatile float one = 1;  // unknown to the compiler
  const Four factor = {one, one, one, one};
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (Four& sum : sums) sum = sum * factor + factor;
  }
  volatile float sink = 0;
  for (const Four& sum : sums) sink = sink + sum[0];
}

#endif

// A multiply-add counts as two operations; `width` is the number of multiply-adds per instruction.
PeakLoop loop(const char* kernels, DType dtype, void (*run)(std::int64_t) noexcept, std::int64_t width) {
  return {kernels, dtype, run, 2 * width * kSums, kSums};
}

}  // namespace

std::vector<PeakLoop> peak_loops() {
  std::vector<PeakLoop> loops;
#if defined(__x86_64__)
  const bool avx512 = cpu_has(CpuLevel::avx512), bf16 = cpu_has(CpuLevel::avx512_bf16);
  if (bf16) loops.push_back(loop("avx512_bf16", DType::bf16, avx512_bf16_loop, 32));
  if (avx512) loops.push_back(loop("avx512", DType::f32, avx512_loop, 16));
  if (bf16) loops.push_back(loop("avx512_bf16", DType::f32, avx512_loop, 16));
  if (cpu_has(CpuLevel::avx2)) loops.push_back(loop("avx2", DType::f32, avx2_loop, 8));
#endif
  loops.push_back(loop("portable", DType::f32, portable_loop, 4));
  return loops;
}

PeakLoop peak_loop(DType dtype, std::string_view kernels) {
  if (dtype != DType::f32 && dtype != DType::bf16) {
    throw std::invalid_argument("[measure] expected f32 or bf16; found " + std::string(dtype_name(dtype)));
  }
  const std::vector<PeakLoop> loops = peak_loops();
  const PeakLoop* found = nullptr;
  for (const PeakLoop& candidate : loops) {
    if (!kernels.empty() && kernels != candidate.kernels) continue;
    if (candidate.dtype == dtype) return candidate;
    if (!found && candidate.dtype == DType::f32) found = &candidate;
  }
  if (!found) {
    throw std::invalid_argument("[measure] expected a kernel set that this processor supports; found '" +
                                std::string(kernels) + "'");
  }
  return *found;
}

}  // namespace qkv::measure
