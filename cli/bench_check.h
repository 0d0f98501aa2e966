// SPDX-License-Identifier: Apache-2.0
// Compares the results of a pass with the reference path in f64.
#pragma once

#include <qkv/attention.h>

#include <cstdint>
#include <string>

#include "bench_case.h"

namespace qkv::cli {

struct Deviation {
  double absolute = 0;  // largest difference over all compared values
  double relative = 0;  // largest difference relative to the largest value of the array; NaN if anything is NaN
};

// Runs the forward pass and, if `backward`, the backward pass, and compares out and every gradient. To stay fast it
// compares all heads if they are short, one head if it is long, and only some rows of a head if it is longer still
// (then backward() runs again with a gradient that is 0 in the other rows). Throws as require_right() does.
Deviation run_and_check(AttentionArrays& arrays, bool backward, double limit, const std::string& what);

// The same for the forward pass of any views.
Deviation check_forward_against_f64(const AttentionCase& sizes, const ConstView& q, const ConstView& k,
                                    const ConstView& v, const AttentionOptions& options, const ConstView& out);

// Throws std::runtime_error if the deviation is above `limit` (0: the rounding error expected for the type) or NaN:
// wrong results are not timed.
void require_right(const Deviation& deviation, DType dtype, double limit, const std::string& what);

}  // namespace qkv::cli
