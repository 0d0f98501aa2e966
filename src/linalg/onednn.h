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

// While it lives, products called on this thread may use so many threads, at most `most`; oneDNN asks OpenMP. Others in
// the program that ask OpenMP as well (PyTorch) find its answer afterwards as it was.
class ProductThreads {
 public:
  explicit ProductThreads(std::int64_t most) : before_(omp_get_max_threads()) {
    if (omp_in_parallel()) return;
    count_ = static_cast<int>(std::min<std::int64_t>(num_threads(), most));
    if (before_ != count_) omp_set_num_threads(count_);
  }
  ProductThreads() : ProductThreads(num_threads()) {}
  ~ProductThreads() {
    if (!omp_in_parallel() && before_ != count_) omp_set_num_threads(before_);
  }
  ProductThreads(const ProductThreads&) = delete;
  ProductThreads& operator=(const ProductThreads&) = delete;
  int count() const noexcept { return count_; }

 private:
  int before_, count_ = 1;
};

}  // namespace qkv
