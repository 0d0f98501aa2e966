// SPDX-License-Identifier: Apache-2.0
// Which instruction set the kernels use.
#pragma once

#include <string_view>

namespace qkv {

// "portable", "avx2", "avx512" or "avx512_bf16": the best one this processor has, or the one that the environment
// variable QKV_KERNELS names when first asked. The environment variable QKV_CPU limits the whole library, matrix
// products included, to a level of the processor: one of the same names. Throws std::invalid_argument if one of them
// names something that is unknown or not available.
std::string_view kernel_set();

}  // namespace qkv
