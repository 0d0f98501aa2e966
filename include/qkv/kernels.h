// SPDX-License-Identifier: Apache-2.0
// Instruction set of the kernels.
#pragma once

#include <string_view>

namespace qkv {

// "portable", "avx2", "avx512" or "avx512_bf16": the best one this processor supports, or the one named by the
// environment variable QKV_KERNELS at the first call. The environment variable QKV_CPU limits the whole library,
// including matmuls, to a processor level with one of the same names. Throws std::invalid_argument if one of them is
// set to an unknown or unavailable name.
std::string_view kernel_set();

}  // namespace qkv
