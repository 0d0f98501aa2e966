// SPDX-License-Identifier: Apache-2.0
#include "model/trace_norm.h"

namespace qkv {
namespace {

// Shows the divisor of a norm, and x / divisor, in the stream dtype T.
template <class T>
void show_norm(const LayerTrace& trace, TraceSite scale, TraceSite normalized, Norm kind, const ConstView& x,
               const ConstView& statistics, const ConstView& y) {
  const std::int64_t rows = x.shape[0], d = x.shape[1];
  const T *values = static_cast<const T*>(x.data), *stats = static_cast<const T*>(statistics.data);
  if (trace.wants(scale)) {
    Tensor scales(Dims{trace.batch, trace.ctx, 1}, x.dtype);
    for (std::int64_t i = 0; i < rows; ++i) scales.data<T>()[i] = 1 / stats[2 * i + 1];
    trace.show(scale, scales);
  }
  if (!trace.wants(normalized)) return;
  if (kind == Norm::layernorm)
    return trace.show(normalized, {y.data, y.dtype, Dims{trace.batch, trace.ctx, d}, Dims{trace.ctx * d, d, 1}});
  Tensor divided(Dims{trace.batch, trace.ctx, d}, x.dtype);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < d; ++j) divided.data<T>()[i * d + j] = values[i * d + j] * stats[2 * i + 1];
  trace.show(normalized, divided);
}

}  // namespace

void trace_norm(const LayerTrace& trace, TraceSite scale, TraceSite normalized, Norm kind, const ConstView& x,
                const ConstView& statistics, const ConstView& y) {
  if (!trace.sink) return;
  if (x.dtype == DType::f64)
    show_norm<double>(trace, scale, normalized, kind, x, statistics, y);
  else
    show_norm<float>(trace, scale, normalized, kind, x, statistics, y);
}

}  // namespace qkv
