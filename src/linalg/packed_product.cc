// SPDX-License-Identifier: Apache-2.0
#include "linalg/packed_product.h"

#include <stdexcept>
#include <string>

#ifndef QKV_PLAIN_GEMM
#include <array>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>

#include "core/large_memory.h"
#include "linalg/onednn.h"
#endif

namespace qkv {

#ifdef QKV_PLAIN_GEMM

bool packed_products(DType) { return false; }
void PackedMatrix::pack(DType, std::int64_t, std::int64_t, const float*, bool) {
  throw std::logic_error("[packed_product] not in this build");
}
bool PackedMatrix::has_small_batch() const { return false; }
void PackedMatrix::prefetch(Team&) const noexcept {}
void PackedMatrix::product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const {
  product(Algorithm::automatic, rows, x, bias, y_dtype, y);
}
void PackedMatrix::product(Algorithm, std::int64_t, const void*, const float*, DType, void*) const {
  throw std::logic_error("[packed_product] not in this build: " + std::string(dtype_name(operand_)) + " " +
                         to_string(Dims{k_, n_}));
}

#else

namespace {

constexpr std::int64_t kPanel = 64;  // columns

using Type = dnnl::memory::data_type;
using Dimensions = dnnl::memory::dims;

Type type_of(DType dtype) { return dtype == DType::bf16 ? Type::bf16 : Type::f32; }

dnnl::memory::desc any_layout(DType operand, std::int64_t k, std::int64_t n) {
  return {Dimensions{k, n}, type_of(operand), dnnl::memory::format_tag::any};
}

struct Shape {
  DType operand, y;
  bool bias;
  std::int64_t rows, n, k;
  int threads;
  bool operator<(const Shape& o) const {
    return std::tie(operand, y, bias, rows, n, k, threads) <
           std::tie(o.operand, o.y, o.bias, o.rows, o.n, o.k, o.threads);
  }
};

dnnl::matmul::primitive_desc describe(const Shape& s) {
  using Desc = dnnl::memory::desc;
  const Desc x(Dimensions{s.rows, s.k}, type_of(s.operand), Dimensions{s.k, 1});
  const Desc y(Dimensions{s.rows, s.n}, type_of(s.y), Dimensions{s.n, 1});
  const Desc bias(Dimensions{1, s.n}, Type::f32, Dimensions{s.n, 1});
  const Desc w = any_layout(s.operand, s.k, s.n);
  if (s.bias) return {dnnl::matmul::desc(x, w, bias, y), cpu_engine()};
  return {dnnl::matmul::desc(x, w, y), cpu_engine()};
}

struct Product {
  dnnl::matmul primitive;
  dnnl::memory x, w, bias, y;
};

// A primitive object must not run on two threads at once, so each thread has its own; oneDNN shares the generated code.
Product& cached_product(const Shape& shape) {
  constexpr std::size_t kMaxProducts = 2048;
  thread_local std::map<Shape, Product> cache;
  if (const auto found = cache.find(shape); found != cache.end()) return found->second;
  if (cache.size() >= kMaxProducts) cache.clear();
  const auto desc = describe(shape);
  if (!is_brg(desc)) throw std::logic_error(std::string("[packed_product] unexpected product ") + desc.impl_info_str());
  Product product;
  product.primitive = dnnl::matmul(desc);
  product.x = dnnl::memory(desc.src_desc(), cpu_engine(), nullptr);
  product.w = dnnl::memory(desc.weights_desc(), cpu_engine(), nullptr);
  if (shape.bias) product.bias = dnnl::memory(desc.bias_desc(), cpu_engine(), nullptr);
  product.y = dnnl::memory(desc.dst_desc(), cpu_engine(), nullptr);
  return cache.emplace(shape, std::move(product)).first->second;
}

// Columns per panel / 16 if the layout is panels of columns, each with its rows (pairs of rows in bf16) stored
// consecutively; else 0. size: elements per panel.
int panel_vectors(const dnnl::memory::desc& layout, bool bf16, std::int64_t& size) {
  const dnnl_memory_desc_t& d = layout.data;
  const dnnl_blocking_desc_t& b = d.format_desc.blocking;
  if (d.format_kind != dnnl_blocked || b.inner_nblks != (bf16 ? 3 : 2)) return 0;
  if (b.inner_idxs[0] != 0 || b.inner_idxs[1] != 1 || (bf16 && (b.inner_idxs[2] != 0 || b.inner_blks[2] != 2)))
    return 0;
  const std::int64_t columns = b.inner_blks[1], rows = b.inner_blks[0] * (bf16 ? 2 : 1);
  if (columns % 16 != 0 || columns > 64 || b.strides[0] != rows * columns) return 0;
  if (b.strides[1] != d.padded_dims[0] * columns && d.padded_dims[1] > columns) return 0;
  size = d.padded_dims[0] * columns;
  return static_cast<int>(columns / 16);
}

}  // namespace

bool packed_products(DType operand) {
  const auto ask = [](DType dtype) {
    try {
      const auto desc = describe({dtype, DType::f32, true, 64, 64, 64, 1});
      const std::string_view name = desc.impl_info_str();
      return dtype == DType::f32 ? is_brg(desc) : name == "brg:avx512_core_bf16";
    } catch (const dnnl::error&) {
      return false;
    }
  };
  static const bool f32 = ask(DType::f32), bf16 = ask(DType::bf16);
  return operand == DType::f32 ? f32 : operand == DType::bf16 && bf16;
}

void PackedMatrix::pack(DType operand, std::int64_t k, std::int64_t n, const float* b, bool transposed) {
  operand_ = operand;
  k_ = k;
  n_ = n;
  const ProductThreads threads;
  // The layout is the same for any number of rows.
  const auto layout = describe({operand, DType::f32, false, 64, n, k, 0}).weights_desc();
  vectors_ = panel_vectors(layout, operand == DType::bf16, panel_size_);
  if (bytes_ != layout.get_size()) {
    elements_.reset();
    elements_ = matrix_memory(layout.get_size());
    bytes_ = layout.get_size();
    const std::size_t element = dtype_size(operand);
    if (bytes_ != static_cast<std::size_t>(k * n) * element) std::memset(elements_.get(), 0, bytes_);  // panel padding
  }
  const dnnl::memory::desc plain(Dimensions{k, n}, Type::f32, transposed ? Dimensions{1, k} : Dimensions{n, 1});
  dnnl::memory from(plain, cpu_engine(), const_cast<float*>(b)), to(layout, cpu_engine(), elements_.get());
  dnnl::reorder(from, to).execute(cpu_stream(), from, to);
  cpu_stream().wait();
}

bool PackedMatrix::has_small_batch() const { return small_batch_chunk() > 0; }

void PackedMatrix::product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const {
  product(Algorithm::automatic, rows, x, bias, y_dtype, y);
}

void PackedMatrix::product(Algorithm algorithm, std::int64_t rows, const void* x, const float* bias, DType y_dtype,
                           void* y) const {
  const bool few = algorithm == Algorithm::small_batch || (algorithm == Algorithm::automatic && rows <= kSmallBatch);
  const std::int64_t chunk = few ? small_batch_chunk() : 0;
  if (chunk > 0) return small_batch_product(chunk, rows, x, bias, y_dtype, y);
  library_product(rows, x, bias, y_dtype, y);
}

void PackedMatrix::library_product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const {
  // With few rows and more threads than panels of columns, oneDNN splits the sums into parts, one per thread (observed
  // up to 40 rows, never from 64 on): use at most as many threads as panels in that case.
  const std::int64_t panels = (n_ + kPanel - 1) / kPanel;
  const ProductThreads threads(rows < 2 * kPanel ? panels : num_threads());
  Product& product = cached_product({operand_, y_dtype, bias != nullptr, rows, n_, k_, threads.count()});
  product.x.set_data_handle(const_cast<void*>(x));
  product.w.set_data_handle(elements_.get());
  product.y.set_data_handle(y);
  std::unordered_map<int, dnnl::memory> arguments{
      {DNNL_ARG_SRC, product.x}, {DNNL_ARG_WEIGHTS, product.w}, {DNNL_ARG_DST, product.y}};
  if (bias) {
    product.bias.set_data_handle(const_cast<float*>(bias));
    arguments.emplace(DNNL_ARG_BIAS, product.bias);
  }
  product.primitive.execute(cpu_stream(), arguments);
  cpu_stream().wait();
}

#endif

}  // namespace qkv
