// SPDX-License-Identifier: Apache-2.0
// Shared by the oneDNN products: one engine, a stream per thread, and a check of the implementation chosen.
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

// oneDNN detects the processor itself; the level must be set before its first use in the process. If other code in the
// process has already used it, the highest level still upholds the guarantees: AMX products are not accepted as packed
// products.
inline void limit_onednn() {
  using Isa = dnnl::cpu_isa;
  constexpr Isa kIsas[] = {Isa::sse41, Isa::avx2, Isa::avx512_core, Isa::avx512_core_bf16};
  const CpuLevel level = cpu_level();
  const Isa isa = kIsas[static_cast<int>(level)];
  if (dnnl::set_max_cpu_isa(isa) == dnnl::status::success || level == processor_levels().back()) return;
  if ((static_cast<int>(dnnl::get_effective_cpu_isa()) & ~static_cast<int>(isa)) != 0)
    throw std::runtime_error("[QKV_CPU] expected oneDNN to be unused; found that this process has already used it");
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

// oneDNN's other products violate the guarantees of gemm.h: their bits depend on m and on the thread count.
inline bool is_brg(const dnnl::matmul::primitive_desc& desc) {
  return std::string_view(desc.impl_info_str()).starts_with("brg:");
}

// For its lifetime, products called on this thread may use num_threads() threads, at most `most`; oneDNN takes the
// number from OpenMP. It is restored afterwards for other users of OpenMP in the process (PyTorch).
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
