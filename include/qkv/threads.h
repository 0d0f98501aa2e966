// SPDX-License-Identifier: Apache-2.0
// Number of compute threads. Results do not depend on it.
#pragma once

namespace qkv {

// Sets the number of threads for all later calls, process-wide; 0: one per core. Throws std::invalid_argument below 0,
// and above 1 in a child of fork() whose parent computed with several threads: the child has one. Do not call while
// another thread computes.
void set_num_threads(int threads);
int num_threads() noexcept;

}  // namespace qkv
