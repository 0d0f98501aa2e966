// SPDX-License-Identifier: Apache-2.0
#include "kernels/decode_body_avx512.h"

namespace qkv {
const DecodeKernels kAvx512DecodeKernels = {"avx512", wide_round_row, block_panel, panel<Singles>, nullptr, nullptr};
}  // namespace qkv
