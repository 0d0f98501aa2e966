// SPDX-License-Identifier: Apache-2.0
// What this machine offers each device of qkv/device.h.
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
  std::vector<DType> compute_dtypes;                          // of matrix products and attention
  int threads = 1;                                            // it computes with
  std::int64_t memory = 0, available_memory = 0;              // bytes; 0: unknown
  std::vector<std::pair<std::string, std::string>> settings;  // of this kind of device: {"kernels", "avx512"} ...
};

// As this process may use it. Throws std::invalid_argument that lists the devices' names, or for a setting of the
// environment (QKV_KERNELS, QKV_CPU) that is wrong.
DeviceFacts device_facts(std::string_view name);

}  // namespace qkv
