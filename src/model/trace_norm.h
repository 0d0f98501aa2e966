// SPDX-License-Identifier: Apache-2.0
// Passes a norm to the trace sink, with TransformerLens' definitions.
#pragma once

#include "device/device.h"
#include "model/layer_trace.h"

namespace qkv {

// scale: the divisor of each row. normalized: for layernorm y; for rmsnorm x / scale, before the gain. x, y [rows,
// d_model], statistics [rows, 2] as in Device::norm(); rows = batch * ctx.
void trace_norm(const LayerTrace& trace, TraceSite scale, TraceSite normalized, Norm kind, const ConstView& x,
                const ConstView& statistics, const ConstView& y);

}  // namespace qkv
