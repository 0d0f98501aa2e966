// SPDX-License-Identifier: Apache-2.0
// Prints the choices of every part of the library for the level that QKV_CPU names, or the error (exit status 1).
#include <cstdio>
#include <stdexcept>
#include <string>

#include "linalg/packed_product.h"
#include "linalg/tile.h"
#include "linalg/weights.h"
#include "measure/peak_loops.h"
#include "measure/read_loops.h"
#include "os/cpu_level.h"
#include "qkv/kernels.h"
#include "qkv/measure.h"
#include "qkv/training_memory.h"

int main() {
  using namespace qkv;
  try {
    const ModelConfig c = preset("andrea-120m").resolved();
    std::printf("level=%s kernels=%s tile=%s", std::string(cpu_level_name(cpu_level())).c_str(),
                std::string(kernel_set()).c_str(), best_tile() == tile_portable ? "portable" : "wide");
    std::printf(" packed_f32=%d packed_bf16=%d fast_bf16=%d", packed_products(DType::f32), packed_products(DType::bf16),
                has_fast_bf16_products());
    std::printf(" peaks=");
    for (const auto& loop : measure::peak_loops()) std::printf("%s;", loop.kernels);
    std::printf(" loads=%s", measure::read_loops().front().name.substr(0, 2).c_str());
    std::printf(" copies=%.0f\n", static_cast<double>(training_memory(c, {.threads = 1}).operands) /
                                      static_cast<double>(4 * matrix_parameters(c)));
  } catch (const std::invalid_argument& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}
