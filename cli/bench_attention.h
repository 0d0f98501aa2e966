// SPDX-License-Identifier: Apache-2.0
// Shared by the parts of `qkv bench attention`.
#pragma once

#include <qkv/measure.h>
#include <qkv/tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench_case.h"
#include "bench_check.h"

namespace qkv::cli {

enum class Pass : std::uint8_t { forward, backward, decode };
const char* pass_name(Pass pass);

struct BenchOptions {
  std::vector<AttentionCase> shapes;  // empty: the standard table
  std::vector<Pass> passes;           // empty: forward and backward, or decode if there are many keys per query
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  int reps = 7;
  double limit = 0;              // of the deviation from f64; 0: the default for the type
  std::int64_t megabytes = 512;  // memory that the read and decode measurements cycle through
  bool json = false;
  bool matrix = false, check = false;
};

// Peaks, each created on first use.
class Peaks {
 public:
  const PeakMeter& peak(DType dtype);

 private:
  std::map<DType, PeakMeter> peaks_;
};

// Each prints its line, or throws if the result is wrong.
void bench_pass(const AttentionCase& sizes, Pass pass, DType dtype, const BenchOptions& options, Peaks& peaks);
void bench_decode(const AttentionCase& sizes, DType dtype, const BenchOptions& options);
// Every option and head size against the plain case of the first shape; false if one is below 60 % of its speed.
bool bench_matrix(const BenchOptions& options);

// The keys common to all --json lines.
std::string line_head(const AttentionCase& sizes, Pass pass, DType dtype);

}  // namespace qkv::cli
