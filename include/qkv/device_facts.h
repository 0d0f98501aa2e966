// SPDX-License-Identifier: Apache-2.0
// Hardware information for each device of qkv/device.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

struct DeviceFacts {
  std::string hardware;                                       // "AMD EPYC 9B45"; empty: unknown
  DType stream_type = DType::f32;                             // of parameters, the residual stream and gradients
  std::vector<DType> compute_dtypes;                          // of matmuls and attention
  int threads = 1;                                            // compute threads
  std::int64_t memory = 0, available_memory = 0;              // bytes; 0: unknown
  std::vector<std::pair<std::string, std::string>> settings;  // specific to the device: {"kernels", "avx512"} ...
};

// As available to this process. Throws std::invalid_argument, listing the device names, and for an invalid environment
// variable (QKV_KERNELS, QKV_CPU).
DeviceFacts device_facts(std::string_view name);

}  // namespace qkv
