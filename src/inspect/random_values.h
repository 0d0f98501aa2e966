// SPDX-License-Identifier: Apache-2.0
// Random tensors for examples.
#pragma once

#include <cstdint>

#include "core/random.h"
#include "qkv/tensor.h"

namespace qkv {

// f64, normal with mean 0; the same for the same arguments.
inline Tensor drawn(const Dims& shape, double deviation, std::uint64_t seed, std::uint64_t stream) {
  Tensor t(shape, DType::f64);
  const Random random(seed, stream);
  for (std::int64_t i = 0; i < t.size(); ++i) {
    t.data<double>()[i] = deviation * random.normal(static_cast<std::uint64_t>(i));
  }
  return t;
}

}  // namespace qkv
