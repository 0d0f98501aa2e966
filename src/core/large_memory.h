// SPDX-License-Identifier: Apache-2.0
// Memory for matrices that are read repeatedly: slices of blocks in large pages, which single matrices of a few
// megabytes would not get. Hardware prefetching and address translation work per page.
#pragma once

#include <cstddef>
#include <memory>

namespace qkv {

// `bytes` of memory, 64-byte aligned, uninitialized. A block is freed once all its slices are. Throws std::bad_alloc.
// May be called from several threads at once.
std::shared_ptr<void> matrix_memory(std::size_t bytes);

}  // namespace qkv
