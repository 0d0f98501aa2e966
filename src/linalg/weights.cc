// SPDX-License-Identifier: Apache-2.0
#include "linalg/weights.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <vector>

#include "core/float_types.h"
#include "core/parallel.h"
#include "linalg/block_matrix.h"
#include "linalg/gemm.h"
#include "linalg/packed_product.h"

namespace qkv {
namespace {

// dst [rows, columns] of S with row stride ldd = src [rows, columns] of T with row stride lds
template <class T, class S>
void copy_rounded(std::int64_t rows, std::int64_t columns, const T* src, std::int64_t lds, S* dst, std::int64_t ldd) {
  parallel_ranges(rows, std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, columns)),
                  [=](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t i = begin; i < end; ++i)
                      for (std::int64_t j = 0; j < columns; ++j) {
                        if constexpr (std::is_same_v<T, S>)
                          dst[i * ldd + j] = src[i * lds + j];
                        else
                          dst[i * ldd + j] = narrow<S>(src[i * lds + j]);
                      }
                  });
}

// Thread-local buffer for joining matrices, reused in each training step.
template <class T>
T* buffer_of(std::int64_t size) {
  thread_local std::vector<T> buffer;
  if (buffer.size() < static_cast<std::size_t>(size)) buffer.resize(static_cast<std::size_t>(size));
  return buffer.data();
}

}  // namespace

// W, or W^T if `transposed`: dense in the compute dtype if there is no packed product; otherwise packed both ways.
struct Weights::Impl {
  DType operand = DType::f32;
  std::int64_t in = 0, out = 0;
  bool transposed = false, backward = false;
  Tensor dense;                          // [in, out] or, if transposed, [out, in]
  PackedMatrix packed, packed_backward;  // [in, out] and [out, in]
  std::vector<BlockMatrix> blocks;       // concatenated, [in, columns] each; or empty

  bool is_packed() const { return packed_products(operand); }
  std::int64_t stride() const { return transposed ? in : out; }

  template <class T>
  void finish(const T* w, bool keep_backward) {  // w dense, transposed or not
    backward = keep_backward;
    if constexpr (std::is_same_v<T, float>) {
      if (is_packed()) {
        packed.pack(operand, in, out, w, transposed);
        if (backward) packed_backward.pack(operand, out, in, w, !transposed);
        return;
      }
    }
    const Dims shape = transposed ? Dims{out, in} : Dims{in, out};
    if (!(dense.shape() == shape) || !dense.raw()) dense = Tensor(shape, operand);
    if constexpr (std::is_same_v<T, double>)
      copy_rounded(shape[0], shape[1], w, stride(), dense.data<double>(), stride());
    else if (operand == DType::bf16)
      copy_rounded(shape[0], shape[1], w, stride(), dense.data<bf16>(), stride());
    else
      copy_rounded(shape[0], shape[1], w, stride(), dense.data<float>(), stride());
  }
};

Weights::Weights() = default;
Weights::~Weights() = default;
Weights::Weights(Weights&&) noexcept = default;
Weights& Weights::operator=(Weights&&) noexcept = default;

Weights::Weights(DType operand, std::int64_t in, std::int64_t out) : impl_(std::make_unique<Impl>()) {
  if (operand != DType::f32 && operand != DType::bf16 && operand != DType::f64)
    throw std::invalid_argument("[weights] expected compute dtype f32, bf16 or f64; found " +
                                std::string(dtype_name(operand)));
  impl_->operand = operand;
  impl_->in = in;
  impl_->out = out;
}

std::int64_t Weights::in() const noexcept { return impl_ ? impl_->in : 0; }
std::int64_t Weights::out() const noexcept { return impl_ ? impl_->out : 0; }

template <class T>
void Weights::prepare(std::span<const MatrixPart<T>> parts, bool backward) {
  Impl& w = *impl_;
  w.transposed = false;
  if (parts.size() == 1 && parts[0].columns == w.out) return w.finish(parts[0].data, backward);
  T* joined = buffer_of<T>(w.in * w.out);  // [in, out]
  std::int64_t first = 0;
  for (const MatrixPart<T>& part : parts) {
    copy_rounded(w.in, part.columns, part.data, part.columns, joined + first, w.out);
    first += part.columns;
  }
  for (std::int64_t i = 0; i < w.in && first < w.out; ++i)
    std::fill(joined + i * w.out + first, joined + (i + 1) * w.out, T{0});
  w.finish(static_cast<const T*>(joined), backward);
}

template <class T>
void Weights::prepare_transposed(const T* e, std::int64_t columns, bool backward) {
  Impl& w = *impl_;
  w.transposed = true;
  if (columns == w.out) return w.finish(e, backward);
  T* padded = buffer_of<T>(w.in * w.out);  // [out, in]
  copy_rounded(columns, w.in, e, w.in, padded, w.in);
  std::fill(padded + columns * w.in, padded + w.out * w.in, T{0});
  w.finish(static_cast<const T*>(padded), backward);
}

namespace {

// y [rows, n] = x [rows, k] op(B), plain loops: B dense in S, sums in T
template <class S, class T, class D>
void dense_product(bool transposed, std::int64_t rows, std::int64_t n, std::int64_t k, const S* x, const S* b,
                   const T* bias, D* y) {
  const std::int64_t ldb = transposed ? k : n;
  std::vector<T> wide_x, wide_b, wide_y;
  const auto widened = [](const S* from, std::int64_t size, std::vector<T>& buffer) -> const T* {
    if constexpr (std::is_same_v<S, T>) {
      return from;
    } else {
      buffer.resize(static_cast<std::size_t>(size));
      for (std::int64_t i = 0; i < size; ++i) buffer[static_cast<std::size_t>(i)] = widen(from[i]);
      return buffer.data();
    }
  };
  T* sums = nullptr;
  if constexpr (std::is_same_v<D, T>) {
    sums = y;
  } else {
    wide_y.resize(static_cast<std::size_t>(rows * n));
    sums = wide_y.data();
  }
  gemm(false, transposed, rows, n, k, widened(x, rows * k, wide_x), k, widened(b, k * n, wide_b), ldb, T{0}, sums, n);
  parallel_ranges(rows, std::max<std::int64_t>(1, 16384 / n), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * n; i < end * n; ++i) {
      if (bias) sums[i] += bias[i % n];
      if constexpr (!std::is_same_v<D, T>) y[i] = narrow<D>(sums[i]);
    }
  });
}

}  // namespace

bool Weights::has_blocks() const noexcept { return impl_ && !impl_->blocks.empty(); }

bool Weights::has_small_batch(std::int64_t rows) const {
  return has_blocks() || (impl_ && impl_->is_packed() && impl_->packed.has_small_batch(rows));
}

std::size_t Weights::bytes() const noexcept {
  if (!impl_) return 0;
  std::size_t bytes = impl_->dense.bytes() + impl_->packed.bytes();
  for (const BlockMatrix& part : impl_->blocks) bytes += part.bytes();
  return bytes;
}

void Weights::prepare_blocks(std::span<const BlockColumns> parts) {
  constexpr std::int64_t kAtOnce = 16;  // columns per task
  if (impl_->operand != DType::f32) throw std::invalid_argument("[weights] expected f32 as compute dtype for blocks");
  impl_->blocks.clear();
  impl_->backward = false;
  std::int64_t columns = 0;
  for (const BlockColumns& part : parts) {
    BlockMatrix& matrix = impl_->blocks.emplace_back(part.type, impl_->in, part.columns);
    columns += part.columns;
    parallel_ranges(part.columns, kAtOnce, [&](std::int64_t begin, std::int64_t end) {
      std::vector<std::byte> rows(static_cast<std::size_t>((end - begin) * row_bytes(part.type, impl_->in)));
      part.read(begin, end - begin, rows.data());
      matrix.set_columns(begin, end - begin, rows.data());
    });
  }
  if (columns > impl_->out)
    throw std::invalid_argument("[weights] expected at most " + std::to_string(impl_->out) + " columns; found " +
                                std::to_string(columns));
}

void Weights::column(std::int64_t j, float* to) const {
  for (const BlockMatrix& part : impl_->blocks) {
    if (j < part.columns()) return part.column(j, to);
    j -= part.columns();
  }
}

namespace {

// y [rows, out] = x [rows, in] W + bias, W in blocks; columns past those of W are 0.
void block_product(std::span<const BlockMatrix> parts, std::int64_t rows, std::int64_t in, std::int64_t out,
                   const float* x, const float* bias, float* y) {
  thread_local std::vector<RowBlock> buffer;  // [rows, in / 32]
  const std::int64_t blocks = in / kRowBlock;
  buffer.resize(std::max(buffer.size(), static_cast<std::size_t>(rows * blocks)));
  RowBlock* whole = buffer.data();
  parallel_ranges(rows, std::max<std::int64_t>(1, 4096 / std::max<std::int64_t>(1, in)),
                  [=](std::int64_t begin, std::int64_t end) {
                    decode_kernels().round_row((end - begin) * in, x + begin * in, whole + begin * blocks);
                  });
  std::int64_t panels = 0, columns = 0;
  for (const BlockMatrix& part : parts) {
    panels += part.panels();
    columns += part.columns();
  }
  parallel_spans(panels, [=](std::int64_t panel) {
    const BlockMatrix* part = parts.data();
    std::int64_t first = 0;  // first column of the part
    for (; panel >= part->panels(); ++part) {
      panel -= part->panels();
      first += part->columns();
    }
    part->product(panel, panel + 1, rows, whole, y + first, out);
    const std::int64_t begin = panel * kBlockColumns, end = std::min(part->columns(), begin + kBlockColumns);
    for (std::int64_t r = 0; bias && r < rows; ++r)
      for (std::int64_t j = first + begin; j < first + end; ++j) y[r * out + j] += bias[j];
  });
  for (std::int64_t r = 0; columns < out && r < rows; ++r) std::fill(y + r * out + columns, y + (r + 1) * out, 0.0f);
}

}  // namespace

// Waiting threads prefetch the panels that parallel_spans will assign to them.
void Weights::prefetch() const noexcept {
  Team* team = Team::current();
  if (!team || !impl_) return;
  if (impl_->blocks.empty()) return impl_->packed.prefetch(*team);
  std::int64_t panels = 0;
  for (const BlockMatrix& part : impl_->blocks) panels += part.panels();
  const std::int64_t threads = std::min<std::int64_t>(team->size(), panels);
  for (std::int64_t t = 0; t < threads; ++t) {
    std::int64_t begin = span_begin(panels, threads, t), count = span_begin(panels, threads, t + 1) - begin;
    for (const BlockMatrix& part : impl_->blocks) {
      if (begin < part.panels()) {
        const std::int64_t bytes = std::min(count, part.panels() - begin) * part.panel_bytes();
        team->prefetch(static_cast<int>(t), part.panel(begin), std::min(bytes, Team::kMaxPrefetchBytes));
        break;
      }
      begin -= part.panels();
    }
  }
}

template <class S, class T, class D>
void Weights::forward(std::int64_t rows, const S* x, const T* bias, D* y) const {
  if (rows == 0) return;
  if constexpr (std::is_same_v<S, float> && std::is_same_v<D, float>) {
    if (!impl_->blocks.empty()) return block_product(impl_->blocks, rows, impl_->in, impl_->out, x, bias, y);
  }
  if constexpr (!std::is_same_v<S, double>) {
    if (impl_->is_packed()) return impl_->packed.product(rows, x, bias, dtype_of<D>, y);
  }
  dense_product(impl_->transposed, rows, impl_->out, impl_->in, x, impl_->dense.data<S>(), bias, y);
}

template <class S, class D>
void Weights::backward_input(std::int64_t rows, const S* dy, D* dx) const {
  if (!impl_->backward) throw std::logic_error("[weights] prepared for forward products only");
  if (rows == 0) return;
  using T = std::conditional_t<std::is_same_v<S, double>, double, float>;
  if constexpr (!std::is_same_v<S, double>) {
    if (impl_->is_packed()) return impl_->packed_backward.product(rows, dy, nullptr, dtype_of<D>, dx);
  }
  dense_product<S, T, D>(!impl_->transposed, rows, impl_->in, impl_->out, dy, impl_->dense.data<S>(), nullptr, dx);
}

template void Weights::prepare<float>(std::span<const MatrixPart<float>>, bool);
template void Weights::prepare<double>(std::span<const MatrixPart<double>>, bool);
template void Weights::prepare_transposed<float>(const float*, std::int64_t, bool);
template void Weights::prepare_transposed<double>(const double*, std::int64_t, bool);
template void Weights::forward(std::int64_t, const float*, const float*, float*) const;
template void Weights::forward(std::int64_t, const bf16*, const float*, float*) const;
template void Weights::forward(std::int64_t, const bf16*, const float*, bf16*) const;
template void Weights::forward(std::int64_t, const double*, const double*, double*) const;
template void Weights::backward_input(std::int64_t, const float*, float*) const;
template void Weights::backward_input(std::int64_t, const bf16*, float*) const;
template void Weights::backward_input(std::int64_t, const bf16*, bf16*) const;
template void Weights::backward_input(std::int64_t, const double*, double*) const;

}  // namespace qkv
