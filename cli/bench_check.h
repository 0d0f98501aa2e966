// SPDX-License-Identifier: Apache-2.0
// What a pass computed against the reference path in f64.
#pragma once

#include <qkv/attention.h>

#include <cstdint>
#include <string>

#include "bench_case.h"

namespace qkv::cli {

struct Deviation {
  double absolute = 0;  // the largest difference, over everything that was compared
  double relative = 0;  // the same as a part of the largest value of its array; NaN if anything is NaN
};

// Runs the forward pass and, if `backward`, the other, and compares out and every gradient. Not everything, so that it
// stays quick: whole heads where they are short, one head where it is long, rows of a head where it is longer still
// (then backward() runs once more, with a gradient that is 0 in the other rows). Throws as require_right() does.
Deviation run_and_check(AttentionArrays& arrays, bool backward, double limit, const std::string& what);

// The same for the forward pass of any views.
Deviation check_forward_against_f64(const AttentionCase& sizes, const ConstView& q, const ConstView& k,
                                    const ConstView& v, const AttentionOptions& options, const ConstView& out);

// Throws std::runtime_error if the deviation is more than `limit` (0: what rounding explains for the type) or NaN:
// what is wrong is not timed.
void require_right(const Deviation& deviation, DType dtype, double limit, const std::string& what);

}  // namespace qkv::cli
