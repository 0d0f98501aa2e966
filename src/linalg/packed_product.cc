// SPDX-License-Identifier: Apache-2.0
#include "linalg/packed_product.h"

#include <stdexcept>
#include <string>

#ifndef QKV_PLAIN_GEMM
#include <array>
#include <map>

#include "linalg/onednn.h"
#endif

namespace qkv {

#ifdef QKV_PLAIN_GEMM

bool packed_products(DType) { return false; }
void PackedMatrix::pack(DType, std::int64_t, std::int64_t, const float*, bool) {
  throw std::logic_error("[packed_product] not in this build");
}
void PackedMatrix::product(std::int64_t, const void*, const float*, DType, void*) const {
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
  auto operator<=>(const Shape&) const = default;
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
  constexpr std::size_t kMostProducts = 2048;
  thread_local std::map<Shape, Product> cache;
  if (const auto found = cache.find(shape); found != cache.end()) return found->second;
  if (cache.size() >= kMostProducts) cache.clear();
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

}  // namespace

bool packed_products(DType operand) {
  const auto ask = [](DType dtype) {
    try {
      const auto desc = describe({dtype, DType::f32, true, 64, 64, 64, 1});
      const std::string name = desc.impl_info_str();
      return is_brg(desc) &&
             (dtype == DType::f32 || name.find("bf16") != std::string::npos || name.find("amx") != std::string::npos);
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
  product_threads();
  // The layout is the same for any number of rows.
  const auto layout = describe({operand, DType::f32, false, 64, n, k, 0}).weights_desc();
  const auto size = static_cast<std::int64_t>(layout.get_size() / dtype_size(operand));
  if (elements_.size() != size || elements_.dtype() != operand) elements_ = Tensor(Dims{size}, operand);
  const dnnl::memory::desc plain(Dimensions{k, n}, Type::f32, transposed ? Dimensions{1, k} : Dimensions{n, 1});
  dnnl::memory from(plain, cpu_engine(), const_cast<float*>(b)), to(layout, cpu_engine(), elements_.raw());
  dnnl::reorder(from, to).execute(cpu_stream(), from, to);
  cpu_stream().wait();
}

void PackedMatrix::product(std::int64_t rows, const void* x, const float* bias, DType y_dtype, void* y) const {
  // With few rows and more threads than panels of columns, oneDNN cuts the sums into parts, one a thread (seen up to 40
  // rows, never from 64 on): no more threads than panels then.
  const std::int64_t panels = (n_ + kPanel - 1) / kPanel;
  const int threads = rows < 2 * kPanel ? product_threads(panels) : product_threads();
  Product& product = cached_product({operand_, y_dtype, bias != nullptr, rows, n_, k_, threads});
  product.x.set_data_handle(const_cast<void*>(x));
  product.w.set_data_handle(const_cast<void*>(elements_.raw()));
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
