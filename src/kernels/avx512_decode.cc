// SPDX-License-Identifier: Apache-2.0
#include "kernels/decode_body_avx512.h"

namespace qkv {
const DecodeKernels kAvx512DecodeKernels = {.name = "avx512",
                                            .round_row = wide_round_row,
                                            .block_panel = block_panel,
                                            .f32_panel = panel<Singles>,
                                            .bf16_panel = nullptr,
                                            .round_bf16 = nullptr};
}  // namespace qkv
