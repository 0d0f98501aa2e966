// SPDX-License-Identifier: Apache-2.0
// NumPy's .npy files (versions 1.0 to 3.0, C and Fortran order; f2 f4 f8 i4 i8 b1, little-endian).
#pragma once

#include <string>

#include "qkv/tensor.h"

namespace qkv {

// Throws qkv::FileError with the byte offset of the error. Fortran order is converted to row-major.
Tensor load_npy(const std::string& path);
// Version 1.0, C order; bf16 is written as f4. Atomic: the file is complete or does not exist.
void save_npy(const std::string& path, const ConstView& array);

}  // namespace qkv
