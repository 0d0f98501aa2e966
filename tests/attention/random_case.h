// SPDX-License-Identifier: Apache-2.0
// A random combination of all attention options.
#pragma once

#include <cstdint>
#include <string>

#include "attention/arrays.h"
#include "attention/naive.h"

namespace qkv::test {

struct RandomCase {
  NaiveInput input;   // values already rounded to `dtype`
  DType dtype;        // of q, k, v and dout: f32, bf16 or f16
  DType mask_dtype;   // of a floating mask
  std::string words;  // description for messages

  // Sizes, options and values of case `number`. In some cases all masked elements are NaN.
  static RandomCase draw(Draw& draw);
};

}  // namespace qkv::test
