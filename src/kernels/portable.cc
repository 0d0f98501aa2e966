// SPDX-License-Identifier: Apache-2.0
// The order of these matters: the vector type, then what is written over it.
#include "kernels/vec_portable.h"

#include "kernels/tile_body_narrow.h"

namespace {
QKV_DEFINE_EXP2(4)
}  // namespace

namespace qkv {
const KernelTable kPortableKernels = {"portable",
                                      4,
                                      2,
                                      {tile_kernels<Vec<4>, 4, Vec<4>>(), tile_kernels<Vec<4>, 12, Vec<4>>()},
                                      nullptr,
                                      all_finite<Vec<4>>,
                                      all_finite_bf16,
                                      widen_bf16<Vec<4>>,
                                      widen_f16<Vec<4>>,
                                      narrow_bf16,
                                      widen_q8_0};
}  // namespace qkv
