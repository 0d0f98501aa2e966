// SPDX-License-Identifier: Apache-2.0
// Memory for matrices that are read again and again: slices of blocks that stand in large pages, as single matrices of
// a few megabytes would not. Processors read ahead, and translate addresses, by the page.
#pragma once

#include <cstddef>
#include <memory>

namespace qkv {

// `bytes` of memory, 64-byte aligned, not cleared. A block is given back when all its slices are. Throws
// std::bad_alloc. May be called from several threads at once.
std::shared_ptr<void> matrix_memory(std::size_t bytes);

}  // namespace qkv
