// SPDX-License-Identifier: Apache-2.0
// A layer's access to the trace sink. Without a sink every call is a single pointer test.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "qkv/trace.h"

namespace qkv {

struct LayerTrace {
  TraceSink* sink = nullptr;
  std::int64_t layer = 0, batch = 0, ctx = 0;

  bool wants(TraceSite site) const { return sink && sink->wants(site, layer); }
  // Whether any of the four attention matrices is wanted; only the reference path computes them.
  bool wants_matrices() const {
    return wants(TraceSite::products) || wants(TraceSite::scaled) || wants(TraceSite::scores) ||
           wants(TraceSite::pattern);
  }
  // Read-only.
  void show(TraceSite site, const ConstView& values) const {
    if (wants(site)) sink->visit({site, layer, values, {}});
  }
  // The sink may modify the values.
  void pass(TraceSite site, const View& values) const {
    if (wants(site)) sink->visit({site, layer, values, values});
  }
  // x [rows, width], row strides allowed, viewed as [batch, ctx, width]
  View by_token(const View& x) const {
    return {x.data, x.dtype, Dims{batch, ctx, x.shape[1]}, Dims{ctx * x.strides[0], x.strides[0], 1}};
  }
};

}  // namespace qkv
