// SPDX-License-Identifier: Apache-2.0
#include "kernels/decode_body.h"

namespace qkv {
const DecodeKernels kAvx2DecodeKernels = {.name = "avx2",
                                          .round_row = round_row,
                                          .block_panel = block_panel,
                                          .f32_panel = nullptr,
                                          .bf16_panel = nullptr,
                                          .round_bf16 = nullptr};
}  // namespace qkv
