// SPDX-License-Identifier: Apache-2.0
// A norm shown to the trace sink, as TransformerLens shows it.
#pragma once

#include "device/device.h"
#include "model/layer_trace.h"

namespace qkv {

// scale: what each row is divided by. normalized: of a layernorm y; of an rmsnorm x / scale, which its gain is
// multiplied with. x, y [rows, d_model], statistics [rows, 2], as Device::norm() has them; rows = batch * ctx.
void trace_norm(const LayerTrace& trace, TraceSite scale, TraceSite normalized, Norm kind, const ConstView& x,
                const ConstView& statistics, const ConstView& y);

}  // namespace qkv
