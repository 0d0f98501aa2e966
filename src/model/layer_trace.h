// SPDX-License-Identifier: Apache-2.0
// A layer's line to the trace sink. Without one nothing is done: every call is a test of one pointer.
#pragma once

#include <cstdint>

#include "qkv/tensor.h"
#include "qkv/trace.h"

namespace qkv {

struct LayerTrace {
  TraceSink* sink = nullptr;
  std::int64_t layer = 0, batch = 0, ctx = 0;

  bool wants(TraceSite site) const { return sink && sink->wants(site, layer); }
  // One of attention's four matrices, which only the reference path makes.
  bool wants_matrices() const {
    return wants(TraceSite::products) || wants(TraceSite::scaled) || wants(TraceSite::scores) ||
           wants(TraceSite::pattern);
  }
  // To look at.
  void show(TraceSite site, const ConstView& values) const {
    if (wants(site)) sink->visit({site, layer, values, {}});
  }
  // To look at and to change.
  void pass(TraceSite site, const View& values) const {
    if (wants(site)) sink->visit({site, layer, values, values});
  }
  // data [batch, ctx, stride], of which each token's first `width` elements are seen
  template <class T>
  View rows(T* data, std::int64_t width, std::int64_t stride) const {
    return {data, dtype_of<T>, Dims{batch, ctx, width}, Dims{ctx * stride, stride, 1}};
  }
  template <class T>
  View rows(T* data, std::int64_t width) const {
    return rows(data, width, width);
  }
};

}  // namespace qkv
