// SPDX-License-Identifier: Apache-2.0
// Shared argument checks of inspect.h.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "qkv/tensor.h"

namespace qkv {

[[noreturn]] inline void refuse_inspect(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[inspect] expected " + expected + "; found " + found);
}

// Throws unless the tensor is f32 with this shape.
inline void require_f32(const char* name, const Tensor& tensor, const Dims& shape) {
  if (tensor.dtype() != DType::f32 || !(tensor.shape() == shape) || (tensor.size() > 0 && !tensor.raw()))
    refuse_inspect(std::string(name) + " " + to_string(shape) + " f32",
                   to_string(tensor.shape()) + " " + std::string(dtype_name(tensor.dtype())));
}

}  // namespace qkv
