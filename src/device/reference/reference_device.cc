// SPDX-License-Identifier: Apache-2.0
// Products, attention, embedding and loss, and arrays; norms and the MLP are in reference_rows.cc.
#include "device/reference/reference_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "device/reference/loops.h"
#include "linalg/gemm.h"

namespace qkv {

using reference::at;
using reference::row;
using reference::size_of;
using reference::sum_rows;

namespace {

struct ReferenceMatrix : Matrix {
  std::int64_t rows, columns;
  std::vector<double> w;  // [in, out]

  ReferenceMatrix(std::int64_t in, std::int64_t out) : rows(in), columns(out), w(static_cast<std::size_t>(in * out)) {}
  std::int64_t in() const noexcept override { return rows; }
  std::int64_t out() const noexcept override { return columns; }
  std::size_t bytes() const noexcept override { return w.size() * sizeof(double); }
};

const double* elements(const Matrix& w) { return static_cast<const ReferenceMatrix&>(w).w.data(); }
double* elements(Matrix& w) { return static_cast<ReferenceMatrix&>(w).w.data(); }

}  // namespace

std::string_view ReferenceDevice::name() const noexcept { return "reference"; }
DType ReferenceDevice::stream_type() const noexcept { return DType::f64; }
bool ReferenceDevice::supports_compute_dtype(DType type) const noexcept { return type == DType::f64; }
bool ReferenceDevice::fast_compute_dtype(DType type) const { return supports_compute_dtype(type); }
void ReferenceDevice::run(std::int64_t, std::span<const Matrix* const>, const std::function<void()>& pass) { pass(); }
void ReferenceDevice::prefetch(const Matrix&) const {}

void ReferenceDevice::for_each(std::int64_t count, const std::function<void(std::int64_t)>& one) const {
  for (std::int64_t i = 0; i < count; ++i) one(i);
}

Tensor ReferenceDevice::allocate(const Dims& shape, DType dtype) const { return Tensor(shape, dtype); }

// --- Products.

std::unique_ptr<Matrix> ReferenceDevice::matrix(DType, std::int64_t in, std::int64_t out) const {
  return std::make_unique<ReferenceMatrix>(in, out);
}

void ReferenceDevice::prepare(Matrix& w, std::span<const ConstView> parts, bool) const {
  std::int64_t first = 0;
  for (const ConstView& part : parts) {
    for (std::int64_t i = 0; i < w.in(); ++i)
      std::copy_n(row(part, i), part.shape[1], elements(w) + i * w.out() + first);
    first += part.shape[1];
  }
}

void ReferenceDevice::prepare_transposed(Matrix& w, const ConstView& transposed, bool) const {
  for (std::int64_t j = 0; j < transposed.shape[0]; ++j)
    for (std::int64_t i = 0; i < w.in(); ++i) elements(w)[i * w.out() + j] = row(transposed, j)[i];
}

void ReferenceDevice::prepare_blocks(Matrix&, std::span<const BlockColumns>) const {
  throw std::invalid_argument("[reference] expected weights in f64; found block-quantized weights");
}

void ReferenceDevice::product(const ConstView& x, const Matrix& w, const ConstView& bias, const View& y) {
  const std::int64_t rows = x.shape[0];
  gemm(false, false, rows, w.out(), w.in(), row(x, 0), x.strides[0], elements(w), w.out(), 0.0, row(y, 0),
       y.strides[0]);
  for (std::int64_t i = 0; bias && i < rows; ++i)
    for (std::int64_t j = 0; j < w.out(); ++j) row(y, i)[j] += at(bias, j, 0);
}

void ReferenceDevice::product_backward(const ConstView& dy, const Matrix& w, const View& dx) {
  gemm(false, true, dy.shape[0], w.in(), w.out(), row(dy, 0), dy.strides[0], elements(w), w.out(), 0.0, row(dx, 0),
       dx.strides[0]);
}

void ReferenceDevice::weight_gradients(const Sequences& s, std::span<const SumStep> steps,
                                       std::span<const WeightGradient> gradients) {
  for (const WeightGradient& g : gradients) {
    const std::int64_t in = g.x.shape[1], out = g.dy.shape[1];
    sum_rows(s, steps, g.dw, in * out, [&](std::int64_t i, double* leaf) {
      for (std::int64_t a = 0; a < in; ++a)
        for (std::int64_t b = 0; b < out; ++b) leaf[a * out + b] += row(g.x, i)[a] * row(g.dy, i)[b];
    });
  }
}

void ReferenceDevice::bias_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& dy,
                                    const SlotPointers& db) {
  sum_rows(s, steps, db, dy.shape[1], [&](std::int64_t i, double* leaf) {
    for (std::int64_t j = 0; j < dy.shape[1]; ++j) leaf[j] += row(dy, i)[j];
  });
}

// --- Attention.

void ReferenceDevice::rotary(const Sequences& s, const RotaryTable& table, const RotaryHeads& heads,
                             std::int64_t first_position, bool back, const View& x) {
  const std::int64_t half = heads.rotated / 2;
  for (std::int64_t i = 0; i < s.rows(); ++i) {
    const std::int64_t position = first_position + i % s.ctx;
    const double *cosine = row(table.cosines, position), *sine = row(table.sines, position);  // [half]
    for (std::int64_t h = 0; h < heads.heads; ++h) {
      double *low = row(x, i) + h * heads.head_dim, *high = low + half;  // [half]
      for (std::int64_t j = 0; j < half; ++j) {
        const double a = low[j], b = high[j], sn = back ? -sine[j] : sine[j];
        low[j] = a * cosine[j] - b * sn;
        high[j] = b * cosine[j] + a * sn;
      }
    }
  }
}

void ReferenceDevice::attention(const ConstView& q, const ConstView& k, const ConstView& v,
                                const AttentionOptions& options, const AttentionResults& results) {
  qkv::attention(q, k, v, options, results);
}

void ReferenceDevice::attention_steps(const ConstView& q, const ConstView& k, const ConstView& v,
                                      const AttentionOptions& options, const AttentionSteps& steps,
                                      const AttentionResults& results) {
  qkv::attention_steps(q, k, v, options, steps, results);
}

void ReferenceDevice::attention_backward(const ConstView& q, const ConstView& k, const ConstView& v,
                                         const ConstView& out, const ConstView& lse, const ConstView& dout,
                                         const AttentionOptions& options, const AttentionGradients& gradients) {
  qkv::attention_backward(q, k, v, out, lse, dout, options, gradients);
}

void ReferenceDevice::sink_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& out,
                                    const ConstView& dout, const ConstView& lse, const ConstView& sinks,
                                    const SlotPointers& dsinks) {
  const std::int64_t n_head = out.shape[1], d = out.shape[3];
  const auto element = [](const ConstView& x, std::int64_t b, std::int64_t h, std::int64_t t) {
    return static_cast<const double*>(x.data) + b * x.strides[0] + h * x.strides[1] + t * x.strides[2];
  };
  sum_rows(s, steps, dsinks, n_head, [&](std::int64_t i, double* leaf) {
    const std::int64_t b = i / s.ctx, t = i % s.ctx;
    for (std::int64_t h = 0; h < n_head; ++h) {
      const double denominator = *element(lse, b, h, t);
      if (denominator == -std::numeric_limits<double>::infinity()) continue;  // fully masked row
      double dot = 0;
      for (std::int64_t j = 0; j < d; ++j) dot += element(out, b, h, t)[j] * element(dout, b, h, t)[j];
      leaf[h] -= std::exp(at(sinks, h, 0) - denominator) * dot;
    }
  });
}

void ReferenceDevice::attend(KvCache& cache, const ConstView& q, const ConstView& k, const ConstView& v,
                             const AttentionOptions& options, const View& out) {
  cache.append(k, v);
  AttentionResults results;
  results.out = out;
  cache.attend(q, options, results);
}

// --- Embedding and loss.

void ReferenceDevice::embed(const Sequences& s, std::span<const std::int32_t> tokens, std::int64_t first_position,
                            const TokenTable& table, double scale, const ConstView& positions, const View& x) {
  for (std::int64_t i = 0; i < s.rows(); ++i) {
    const std::int64_t t = i % s.ctx;
    const bool padding = t >= s.length(i / s.ctx);
    for (std::int64_t j = 0; j < x.shape[1]; ++j) {
      row(x, i)[j] = padding ? 0 : scale * row(table.rows, tokens[static_cast<std::size_t>(i)])[j];
      if (positions && !padding) row(x, i)[j] += row(positions, first_position + t)[j];
    }
  }
}

void ReferenceDevice::embed_backward(const Sequences& s, std::span<const SumStep> steps,
                                     std::span<const std::int32_t> tokens, double scale, const ConstView& dx,
                                     const Dims& table, const SlotPointers& dtable,
                                     std::span<std::vector<std::int32_t>* const> touched, const Dims& positions,
                                     const SlotPointers& dpositions) {
  const std::int64_t d = dx.shape[1];
  // Leaves are whole tables here; a slot past 0 is cleared as soon as it is free, as callers expect.
  std::vector<std::int32_t> all(static_cast<std::size_t>(table[0]));
  std::iota(all.begin(), all.end(), 0);
  for (const SumStep& step : steps) {
    if (!dtable[0]) break;
    sum_rows(s, {&step, 1}, dtable, table[0] * d, [&](std::int64_t i, double* leaf) {
      for (std::int64_t j = 0; j < d; ++j) leaf[tokens[static_cast<std::size_t>(i)] * d + j] += scale * row(dx, i)[j];
    });
    if (step.to != 0) *touched[static_cast<std::size_t>(step.to)] = all;
    if (step.from < 0) continue;
    std::fill_n(static_cast<double*>(dtable[static_cast<std::size_t>(step.from)]), table[0] * d, 0.0);
    touched[static_cast<std::size_t>(step.from)]->clear();
  }
  sum_rows(s, steps, dpositions, positions[0] * d, [&](std::int64_t i, double* leaf) {
    for (std::int64_t j = 0; j < d; ++j) leaf[i % s.ctx * d + j] += row(dx, i)[j];
  });
}

void ReferenceDevice::cross_entropy(std::int64_t vocab, const View& logits, std::span<const std::int32_t> targets,
                                    double scale, const View& dlogits, const View& losses) {
  const std::int64_t padded = logits.shape[1];
  for (std::int64_t i = 0; i < logits.shape[0]; ++i) {
    const std::int32_t target = targets[static_cast<std::size_t>(i)];
    const double* x = row(logits, i);
    double& loss = static_cast<double*>(losses.data)[i];
    loss = 0;
    double sum = 0, largest = 0;
    if (target >= 0) {
      largest = *std::max_element(x, x + vocab);
      for (std::int64_t j = 0; j < vocab; ++j) sum += std::exp(x[j] - largest);
      loss = std::log(sum) + (largest - x[target]);
    }
    if (!dlogits) continue;
    double* slope = row(dlogits, i);
    for (std::int64_t j = 0; j < padded; ++j)
      slope[j] = target < 0 || j >= vocab ? 0 : scale * (std::exp(x[j] - largest) / sum - (j == target ? 1.0 : 0.0));
  }
}

// --- Arrays.

void ReferenceDevice::from_host(const void* from, const View& to) const {
  std::memcpy(to.data, from, static_cast<std::size_t>(size_of(to)) * dtype_size(to.dtype));
}

void ReferenceDevice::to_host(const ConstView& from, void* to) const {
  std::memcpy(to, from.data, static_cast<std::size_t>(size_of(from)) * dtype_size(from.dtype));
}

void ReferenceDevice::add(const ConstView& a, const ConstView& b, const View& sum) {
  for (std::int64_t i = 0; i < size_of(a); ++i) static_cast<double*>(sum.data)[i] = at(a, i, 0) + at(b, i, 0);
}

void ReferenceDevice::scale(double factor, const View& x) {
  for (std::int64_t i = 0; i < size_of(x); ++i) static_cast<double*>(x.data)[i] *= factor;
}

void ReferenceDevice::add_one(const ConstView& x, const View& y) const {
  for (std::int64_t i = 0; i < size_of(x); ++i) static_cast<double*>(y.data)[i] = 1 + at(x, i, 0);
}

void ReferenceDevice::softcap(double cap, const View& x) {
  for (std::int64_t i = 0; i < size_of(x); ++i) {
    double& value = static_cast<double*>(x.data)[i];
    value = cap * std::tanh(value / cap);
  }
}

void ReferenceDevice::softcap_backward(double cap, const ConstView& y, const View& dx) {
  for (std::int64_t i = 0; i < size_of(dx); ++i)
    static_cast<double*>(dx.data)[i] *= 1 - at(y, i, 0) / cap * (at(y, i, 0) / cap);
}

void ReferenceDevice::convert(const ConstView& from, const View& to) const {
  std::copy_n(static_cast<const double*>(from.data), size_of(from), static_cast<double*>(to.data));
}

void ReferenceDevice::fill_zero(const View& x) { std::fill_n(static_cast<double*>(x.data), size_of(x), 0.0); }

void ReferenceDevice::dropout(const Dropout& dropout, std::int64_t first, const ConstView& x, const View& y) {
  for (std::int64_t i = 0; i < size_of(x); ++i)
    static_cast<double*>(y.data)[i] =
        dropout.keeps(static_cast<std::uint64_t>(first + i)) ? at(x, i, 0) * dropout.scale : 0;
}

}  // namespace qkv
