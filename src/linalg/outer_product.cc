// SPDX-License-Identifier: Apache-2.0
// dW = A^T B on one thread with oneDNN's gemm, which is faster here than its matmul, and whose bits are fixed for one
// thread and one shape.
#include <algorithm>
#include <vector>

#include "core/float_types.h"
#include "linalg/gemm_plain.h"
#include "linalg/packed_product.h"
#include "linalg/tile.h"
#include "linalg/weights.h"

#ifndef QKV_PLAIN_GEMM
#include <omp.h>

#include "linalg/onednn.h"

// Exported by oneDNN since 2.0, but not declared in its headers.
extern "C" __attribute__((weak)) dnnl_status_t dnnl_gemm_bf16bf16f32(char trans_a, char trans_b, dnnl_dim_t m,
                                                                     dnnl_dim_t n, dnnl_dim_t k, float alpha,
                                                                     const std::uint16_t* a, dnnl_dim_t lda,
                                                                     const std::uint16_t* b, dnnl_dim_t ldb, float beta,
                                                                     float* c, dnnl_dim_t ldc);
#endif

namespace qkv {
namespace {

#ifndef QKV_PLAIN_GEMM
// For its lifetime, products called on this thread use only this thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) {
    if (before_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (before_ != 1) omp_set_num_threads(before_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
              std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  const OneThread alone;
  cpu_engine();  // the first use of oneDNN
  dnnl_sgemm('T', 'N', m, n, k, 1.0f, a, lda, b, ldb, beta, c, ldc);
}
#else
void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda, const float* b,
              std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  static const Tile tile = best_tile();
  tiled_gemm(tile, true, false, m, n, k, a, lda, b, ldb, beta, c, ldc);
}
#endif

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda, const double* b,
              std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
  plain_gemm(true, false, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

// [rows, columns] of bf16 as dense f32
std::vector<float> widened(std::int64_t rows, std::int64_t columns, const bf16* x, std::int64_t ld) {
  std::vector<float> wide(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) wide[static_cast<std::size_t>(i * columns + j)] = widen(x[i * ld + j]);
  return wide;
}

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, const bf16* a, std::int64_t lda, const bf16* b,
              std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
#ifndef QKV_PLAIN_GEMM
  if (dnnl_gemm_bf16bf16f32 && has_fast_bf16_products()) {
    const OneThread alone;
    static_assert(sizeof(bf16) == sizeof(std::uint16_t));
    dnnl_gemm_bf16bf16f32('T', 'N', m, n, k, 1.0f, &a->bits, lda, &b->bits, ldb, beta, c, ldc);
    return;
  }
#endif
  const std::vector<float> wide_a = widened(k, m, a, lda), wide_b = widened(k, n, b, ldb);
  multiply(m, n, k, wide_a.data(), m, wide_b.data(), n, beta, c, ldc);
}

}  // namespace

bool has_fast_bf16_products() { return packed_products(DType::bf16); }

template <class S, class T>
void outer_product(std::int64_t m, std::int64_t n, std::int64_t k, const S* a, std::int64_t lda, const S* b,
                   std::int64_t ldb, bool add, T* c, std::int64_t ldc) {
  if (m == 0 || n == 0 || (k == 0 && add)) return;
  if (k == 0) {
    for (std::int64_t i = 0; i < m; ++i) std::fill_n(c + i * ldc, n, T{0});
    return;
  }
  multiply(m, n, k, a, lda, b, ldb, add ? T{1} : T{0}, c, ldc);
}

template void outer_product(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const float*,
                            std::int64_t, bool, float*, std::int64_t);
template void outer_product(std::int64_t, std::int64_t, std::int64_t, const bf16*, std::int64_t, const bf16*,
                            std::int64_t, bool, float*, std::int64_t);
template void outer_product(std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t, const double*,
                            std::int64_t, bool, double*, std::int64_t);

}  // namespace qkv
