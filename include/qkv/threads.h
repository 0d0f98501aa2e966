// SPDX-License-Identifier: Apache-2.0
// How many threads qkv computes with. Results never depend on it.
#pragma once

namespace qkv {

// The number of threads of every later call, process-wide; 0: one a core. Throws std::invalid_argument below 0, and
// above 1 in a child of fork() whose parent computed with several: it has one thread. Not while another thread
// computes.
void set_num_threads(int threads);
int num_threads() noexcept;

}  // namespace qkv
