// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_device.h"
#include "os/cpu_level.h"
#include "os/machine.h"
#include "qkv/kernels.h"
#include "qkv/threads.h"

namespace qkv {

DeviceFacts CpuDevice::facts() {
  std::string levels;
  for (const CpuLevel level : processor_levels())
    levels += (levels.empty() ? "" : ", ") + std::string(cpu_level_name(level));
  return {.hardware = cpu_name(),
          .stream_type = DType::f32,
          .compute_dtypes = {DType::f32, DType::bf16},
          .threads = num_threads(),
          .memory = total_memory(),
          .available_memory = available_memory(),
          .settings = {{"processors", std::to_string(core_count())},
                       {"kernels", std::string(kernel_set())},
                       {"features", std::string(cpu_level_name(cpu_level()))},
                       {"available", levels},
                       {"bf16 products", cpu_has(CpuLevel::avx512_bf16) ? "instructions" : "emulated"}}};
}

}  // namespace qkv
