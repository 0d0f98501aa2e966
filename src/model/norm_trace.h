// SPDX-License-Identifier: Apache-2.0
// A norm shown to the trace sink, as TransformerLens shows it.
#pragma once

#include "model/layer_trace.h"
#include "model/norm.h"

namespace qkv {

// scale: what each row is divided by. normalized: of a layernorm y; of an rmsnorm x / scale, which its gain is
// multiplied with. x, y [rows, d] and statistics [rows, 2] as norm_forward() has them; rows = batch * ctx.
template <class T, class S>
void trace_norm(const LayerTrace& trace, TraceSite scale, TraceSite normalized, Norm kind, std::int64_t d, const T* x,
                const T* statistics, S* y) {
  const std::int64_t rows = trace.batch * trace.ctx;
  if (trace.wants(scale)) {
    Tensor scales(Dims{trace.batch, trace.ctx, 1}, dtype_of<T>);
    for (std::int64_t i = 0; i < rows; ++i) scales.data<T>()[i] = 1 / statistics[2 * i + 1];
    trace.show(scale, scales);
  }
  if (!trace.wants(normalized)) return;
  if (kind == Norm::layernorm) return trace.show(normalized, trace.rows(y, d));
  Tensor divided(Dims{trace.batch, trace.ctx, d}, dtype_of<T>);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < d; ++j) divided.data<T>()[i * d + j] = x[i * d + j] * statistics[2 * i + 1];
  trace.show(normalized, divided);
}

}  // namespace qkv
