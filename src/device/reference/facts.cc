// SPDX-License-Identifier: Apache-2.0
#include "device/reference/reference_device.h"
#include "os/machine.h"
#include "qkv/threads.h"

namespace qkv {

DeviceFacts ReferenceDevice::facts() {
  return {.hardware = cpu_name(),
          .stream_type = DType::f64,
          .compute_dtypes = {DType::f64},
          .threads = num_threads(),
          .memory = total_memory(),
          .available_memory = available_memory(),
          .settings = {}};
}

}  // namespace qkv
