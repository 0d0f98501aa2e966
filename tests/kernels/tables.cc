// SPDX-License-Identifier: Apache-2.0
#include "kernels/tables.h"

#include "os/cpu_level.h"

namespace qkv::test {

std::vector<const KernelTable*> available_tables() {
  std::vector<const KernelTable*> all = {&kPortableKernels};
#if defined(__x86_64__)
  if (cpu_has(CpuLevel::avx2)) all.push_back(&kAvx2Kernels);
  if (cpu_has(CpuLevel::avx512)) all.push_back(&kAvx512Kernels);
  if (cpu_has(CpuLevel::avx512_bf16)) all.push_back(&kAvx512Bf16Kernels);
#endif
  return all;
}

std::vector<const RowKernels*> available_row_tables() {
  std::vector<const RowKernels*> all = {&kPortableRowKernels};
#if defined(__x86_64__)
  for (const KernelTable* table : available_tables()) {
    if (table == &kAvx2Kernels) all.push_back(&kAvx2RowKernels);
    if (table == &kAvx512Kernels) all.push_back(&kAvx512RowKernels);
  }
#endif
  return all;
}

}  // namespace qkv::test
