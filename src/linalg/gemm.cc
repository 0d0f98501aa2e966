// SPDX-License-Identifier: Apache-2.0
#include "linalg/gemm.h"

#include "linalg/gemm_plain.h"
#include "linalg/tile.h"

#ifndef QKV_PLAIN_GEMM
#include <array>
#include <bit>
#include <map>

#include "linalg/onednn.h"
#endif

namespace qkv {

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const double* a, std::int64_t lda,
          const double* b, std::int64_t ldb, double beta, double* c, std::int64_t ldc) {
  plain_gemm(trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

#ifdef QKV_PLAIN_GEMM

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  static const Tile tile = best_tile();
  tiled_gemm(tile, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
}

std::string gemm_implementation(bool, bool, std::int64_t, std::int64_t, std::int64_t) { return "tiles"; }

#else

namespace {

// With a transposed A, oneDNN sums long reductions (2048 terms and more) in parts whose number depends on the thread
// count; it was never observed to do so up to 1,500 terms. Longer sums are split here into parts of this size, added in
// order.
constexpr std::int64_t kLongestTransposed = 1024;

using Key = std::array<std::int64_t, 7>;  // trans_a, trans_b, m, n, k, threads, bits of beta
struct Product {
  dnnl::matmul::primitive_desc desc;
  dnnl::matmul primitive;
  dnnl::memory a, b, c;
};

dnnl::memory::desc dense(bool transpose, std::int64_t rows, std::int64_t cols) {
  using M = dnnl::memory;
  const M::dims strides = transpose ? M::dims{1, rows} : M::dims{cols, 1};
  return {M::dims{rows, cols}, M::data_type::f32, strides};
}

dnnl::matmul::primitive_desc describe(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k,
                                      float beta) {
  dnnl::primitive_attr attributes;
  if (beta != 0.0f) {
    dnnl::post_ops ops;
    ops.append_sum(beta);
    attributes.set_post_ops(ops);
  }
  const dnnl::matmul::desc operation(dense(trans_a, m, k), dense(trans_b, k, n), dense(false, m, n));
  return {operation, attributes, cpu_engine()};
}

// oneDNN's other products violate the guarantees of gemm.h: their bits depend on m and on the thread count.
bool has_fixed_bits() {
  static const bool answer = is_brg(describe(false, false, 64, 64, 64, 0.0f));
  return answer;
}

// A primitive object must not run on two threads at once, so each thread has its own; oneDNN shares the generated code.
Product& cached_product(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, float beta,
                        int threads) {
  constexpr std::size_t kMaxProducts = 1024;
  thread_local std::map<Key, Product> cache;
  const Key key{trans_a, trans_b, m, n, k, threads, std::bit_cast<std::int32_t>(beta)};
  if (const auto found = cache.find(key); found != cache.end()) return found->second;
  if (cache.size() >= kMaxProducts) cache.clear();
  Product product;
  product.desc = describe(trans_a, trans_b, m, n, k, beta);
  product.primitive = dnnl::matmul(product.desc);
  product.a = dnnl::memory(product.desc.src_desc(), cpu_engine(), nullptr);
  product.b = dnnl::memory(product.desc.weights_desc(), cpu_engine(), nullptr);
  product.c = dnnl::memory(product.desc.dst_desc(), cpu_engine(), nullptr);
  return cache.emplace(key, std::move(product)).first->second;
}

// a, b and c are dense.
void run_dense(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
               const float* b, float beta, float* c) {
  const ProductThreads threads;
  Product& product = cached_product(trans_a, trans_b, m, n, k, beta, threads.count());
  product.a.set_data_handle(const_cast<float*>(a));
  product.b.set_data_handle(const_cast<float*>(b));
  product.c.set_data_handle(c);
  product.primitive.execute(cpu_stream(),
                            {{DNNL_ARG_SRC, product.a}, {DNNL_ARG_WEIGHTS, product.b}, {DNNL_ARG_DST, product.c}});
  cpu_stream().wait();
}

// Returns src itself if its rows are adjacent, else a dense copy in `buffer`.
const float* as_dense(std::int64_t rows, std::int64_t cols, const float* src, std::int64_t ld,
                      std::vector<float>& buffer) {
  if (ld == cols || rows == 1) return src;
  buffer.resize(static_cast<std::size_t>(rows * cols));
  pack_dense(false, rows, cols, src, ld, buffer.data());
  return buffer.data();
}

}  // namespace

void gemm(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, std::int64_t lda,
          const float* b, std::int64_t ldb, float beta, float* c, std::int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0) return scale_matrix(m, n, beta, c, ldc);
  if (!has_fixed_bits()) {
    static const Tile tile = best_tile();
    return tiled_gemm(tile, trans_a, trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc);
  }
  std::vector<float> dense_c;  // [m, n]
  float* target = c;
  if (ldc != n && m != 1) {
    dense_c.resize(static_cast<std::size_t>(m * n));
    if (beta != 0.0f) pack_dense(false, m, n, c, ldc, dense_c.data());
    target = dense_c.data();
  }
  std::vector<float> part_a, part_b;
  const std::int64_t longest = trans_a ? kLongestTransposed : k;
  for (std::int64_t p = 0; p < k; p += longest) {
    const std::int64_t terms = std::min(longest, k - p);
    const float* x = trans_a ? as_dense(terms, m, a + p * lda, lda, part_a) : as_dense(m, terms, a + p, lda, part_a);
    const float* y = trans_b ? as_dense(n, terms, b + p, ldb, part_b) : as_dense(terms, n, b + p * ldb, ldb, part_b);
    run_dense(trans_a, trans_b, m, n, terms, x, y, p == 0 ? beta : 1.0f, target);
  }
  if (target != c)
    for (std::int64_t i = 0; i < m; ++i) std::copy_n(target + i * n, n, c + i * ldc);
}

std::string gemm_implementation(bool trans_a, bool trans_b, std::int64_t m, std::int64_t n, std::int64_t k) {
  if (!has_fixed_bits()) return "tiles";
  return describe(trans_a, trans_b, m, n, trans_a ? std::min(k, kLongestTransposed) : k, 0.0f).impl_info_str();
}

#endif

}  // namespace qkv
