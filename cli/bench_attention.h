// SPDX-License-Identifier: Apache-2.0
// What the parts of `qkv bench attention` share.
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
  std::vector<AttentionCase> shapes;  // empty: the table of figures
  std::vector<Pass> passes;           // empty: forward and backward, or decode where one query reads many keys
  std::vector<DType> dtypes = {DType::f32, DType::bf16};
  int reps = 7;
  double limit = 0;              // of the deviation from f64; 0: what rounding explains
  std::int64_t megabytes = 512;  // that reading and decoding cycle through
  bool json = false;
  bool matrix = false, check = false;
};

// Peaks, each made when it is first asked for.
class Peaks {
 public:
  const PeakMeter& peak(DType dtype);

 private:
  std::map<DType, PeakMeter> peaks_;
};

// Each prints its line; a result that is wrong throws instead.
void bench_pass(const AttentionCase& sizes, Pass pass, DType dtype, const BenchOptions& options, Peaks& peaks);
void bench_decode(const AttentionCase& sizes, DType dtype, const BenchOptions& options);
// Every option and head size against the plain case of the first shape; false if one is below 60 % of it.
bool bench_matrix(const BenchOptions& options);

// The keys that all lines have, for --json.
std::string line_head(const AttentionCase& sizes, Pass pass, DType dtype);

}  // namespace qkv::cli
