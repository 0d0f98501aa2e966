// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_body.h"

namespace qkv {
extern constexpr RowKernels kAvx512RowKernels = row_kernels_named("avx512");
}  // namespace qkv
