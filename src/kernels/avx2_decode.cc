// SPDX-License-Identifier: Apache-2.0
#include "kernels/decode_body.h"

namespace qkv {
const DecodeKernels kAvx2DecodeKernels = {"avx2", round_row, block_panel, nullptr, nullptr, nullptr};
}  // namespace qkv
