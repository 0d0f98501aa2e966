// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "kernels/decode_kernels.h"
#include "kernels/kernels.h"
#include "kernels/row_kernels.h"
#include "os/cpu_level.h"
#include "qkv/kernels.h"

namespace qkv {
namespace {

struct Choice {
  const KernelTable* table;
  const RowKernels* rows;
  const DecodeKernels* decode;
  CpuLevel needs;
};

// In ascending order of preference.
const Choice* choices(int* count) {
#if defined(__x86_64__) && !defined(QKV_PORTABLE_KERNELS)
  static const Choice kChoices[] = {
      {&kPortableKernels, &kPortableRowKernels, &kPortableDecodeKernels, CpuLevel::portable},
      {&kAvx2Kernels, &kAvx2RowKernels, &kAvx2DecodeKernels, CpuLevel::avx2},
      {&kAvx512Kernels, &kAvx512RowKernels, &kAvx512DecodeKernels, CpuLevel::avx512},
      {&kAvx512Bf16Kernels, &kAvx512RowKernels, &kAvx512Bf16DecodeKernels, CpuLevel::avx512_bf16}};
#else
  static const Choice kChoices[] = {
      {&kPortableKernels, &kPortableRowKernels, &kPortableDecodeKernels, CpuLevel::portable}};
#endif
  *count = static_cast<int>(std::size(kChoices));
  return kChoices;
}

std::string known_names(bool available_only) {
  int count = 0;
  const Choice* all = choices(&count);
  std::string names;
  for (int i = 0; i < count; ++i)
    if (!available_only || cpu_has(all[i].needs))
      names += (names.empty() ? "" : ", ") + std::string(all[i].table->name);
  return names;
}

const Choice& choose() {
  int count = 0;
  const Choice* all = choices(&count);
  const char* forced = std::getenv("QKV_KERNELS");
  if (!forced || !*forced) {
    while (!cpu_has(all[count - 1].needs)) --count;
    return all[count - 1];
  }
  for (int i = 0; i < count; ++i) {
    if (all[i].table->name != forced) continue;
    if (cpu_has(all[i].needs)) return all[i];
    throw std::invalid_argument("[kernels] QKV_KERNELS must be one that this processor supports and QKV_CPU allows (" +
                                known_names(true) + "); found '" + forced + "'");
  }
  throw std::invalid_argument("[kernels] QKV_KERNELS must be one of " + known_names(false) + "; found '" + forced +
                              "'");
}

const Choice& chosen() {
  static const Choice& choice = choose();  // not set if choose() throws: the next call tries again
  return choice;
}

}  // namespace

const KernelTable& kernels() { return *chosen().table; }

const RowKernels& row_kernels() { return *chosen().rows; }

const DecodeKernels& decode_kernels() { return *chosen().decode; }

const TileKernels& tile_for(const KernelTable& table, std::int64_t rows) noexcept {
  for (int i = 0; i < table.tile_count; ++i)
    if (table.tiles[i].width >= rows) return table.tiles[i];
  return table.tiles[table.tile_count - 1];
}

std::string_view kernel_set() { return kernels().name; }

}  // namespace qkv
