// SPDX-License-Identifier: Apache-2.0
// What the products share of oneDNN: one engine, a stream a thread, and the question which implementation was chosen.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <dnnl.hpp>
#include <string_view>

#include "core/parallel.h"

namespace qkv {

inline dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

inline dnnl::stream& cpu_stream() {
  thread_local dnnl::stream stream(cpu_engine());
  return stream;
}

// oneDNN's other products break the promises of gemm.h: their bits depend on m and on the threads.
inline bool is_brg(const dnnl::matmul::primitive_desc& desc) {
  return std::string_view(desc.impl_info_str()).starts_with("brg:");
}

// The threads that a product called here may use, at most `most`; oneDNN asks OpenMP.
inline int product_threads(std::int64_t most) {
  if (omp_in_parallel()) return 1;
  const int threads = static_cast<int>(std::min<std::int64_t>(num_threads(), most));
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  return threads;
}
inline int product_threads() { return product_threads(num_threads()); }

}  // namespace qkv
