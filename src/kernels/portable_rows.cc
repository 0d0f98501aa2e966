// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_body.h"

namespace qkv {
extern constexpr RowKernels kPortableRowKernels = row_kernels_named("portable");
}  // namespace qkv
