// SPDX-License-Identifier: Apache-2.0
#include "qkv/threads.h"

#include <omp.h>

#include <stdexcept>
#include <string>

namespace qkv {
namespace {
int wanted_threads = 0;
}

void set_num_threads(int threads) {
  if (threads < 0)
    throw std::invalid_argument("[threads] expected 0 (one a core) or more; found " + std::to_string(threads));
  wanted_threads = threads;
  omp_set_num_threads(num_threads());
}

int num_threads() noexcept { return wanted_threads > 0 ? wanted_threads : omp_get_num_procs(); }

}  // namespace qkv
