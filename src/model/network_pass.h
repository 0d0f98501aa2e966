// SPDX-License-Identifier: Apache-2.0
// What one pass of a network works on; shared by network.cc and network_backward.cc.
#pragma once

#include "model/network.h"

namespace qkv {

template <class T, class S>
struct Network<T, S>::Pass {
  const ModelParameters<const T*>& p;
  Sequences s;
  std::span<const std::int32_t> tokens;  // [batch, ctx]
  bool keep;                             // activations, for the backward pass
  std::span<KvCache> caches = {};        // [n_layer] when reading on
};

}  // namespace qkv
