// SPDX-License-Identifier: Apache-2.0
// Copies and writes the elements of a strided view in row-major order.
#pragma once

#include "os/atomic_file.h"
#include "qkv/tensor.h"

namespace qkv {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "every format here is little-endian and so must the host be");

// Copies the elements of `from` (any strides), bit for bit, to `to` in row-major order. `to` must have
// element_count(from.shape) * dtype_size(from.dtype) bytes.
void copy_elements(const ConstView& from, void* to);

// Appends the elements to a file, bit for bit, without a full copy; bf16 becomes f32 if `widen_bf16`.
void write_elements(AtomicFile& file, const ConstView& from, bool widen_bf16 = false);

}  // namespace qkv
