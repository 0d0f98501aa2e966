// SPDX-License-Identifier: Apache-2.0
// What the products share of oneDNN: one engine, a stream a thread, and the question which implementation was chosen.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <dnnl.hpp>
#include <stdexcept>
#include <string_view>

#include "core/parallel.h"
#include "os/cpu_level.h"

namespace qkv {

// oneDNN asks the processor by itself; the level has to be set before its first use in the process. Where somebody else
// in the process has used it, the highest level still keeps the promises: products on AMX are not taken for packed
// ones.
inline void limit_onednn() {
  using Isa = dnnl::cpu_isa;
  constexpr Isa kIsas[] = {Isa::sse41, Isa::avx2, Isa::avx512_core, Isa::avx512_core_bf16};
  const CpuLevel level = cpu_level();
  const Isa isa = kIsas[static_cast<int>(level)];
  if (dnnl::set_max_cpu_isa(isa) == dnnl::status::success || level == processor_levels().back()) return;
  if ((static_cast<int>(dnnl::get_effective_cpu_isa()) & ~static_cast<int>(isa)) != 0)
    throw std::runtime_error("[QKV_CPU] expected oneDNN not to be in use yet; found that this process has used it");
}

inline dnnl::engine& cpu_engine() {
  static dnnl::engine engine = [] {
    limit_onednn();
    return dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
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
