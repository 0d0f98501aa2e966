// SPDX-License-Identifier: Apache-2.0
// Arrays for the attention tests: made from values, read as doubles by index, in any memory layout.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/random.h"
#include "qkv/attention.h"
#include "qkv/tensor.h"

namespace qkv::test {

double get(const ConstView& view, std::int64_t offset);
void set(const View& view, std::int64_t offset, double value);
// The value rounded to a type.
double rounded(double value, DType dtype);

// All elements in row-major order of their indices, whatever the strides.
std::vector<double> values(const ConstView& view);
void fill(const View& view, const std::vector<double>& values);

Tensor make(const Dims& shape, const std::vector<double>& values, DType dtype = DType::f32);
Tensor random(const Dims& shape, std::uint64_t seed, DType dtype = DType::f32, double deviation = 1);
Tensor converted(const ConstView& view, DType dtype);
Tensor bool_mask(const Dims& shape, std::initializer_list<int> allowed);

// A sequence of random numbers.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t stream) : random_(seed, stream) {}
  std::int64_t from(std::int64_t least, std::int64_t most) {
    return least + static_cast<std::int64_t>(random_.below(next_++, static_cast<std::uint64_t>(most - least + 1)));
  }
  bool chance(double p) { return random_.uniform(next_++) < p; }
  double uniform(double least, double most) { return least + (most - least) * random_.uniform(next_++); }
  double normal() { return random_.normal(next_++); }

 private:
  Random random_;
  std::uint64_t next_ = 0;
};

// An array with its axes in any memory order, gaps, and strides of both signs; the gaps contain a sentinel.
class StridedArray {
 public:
  StridedArray(const Dims& shape, DType dtype, Draw& draw, double sentinel);
  const View& view() const { return view_; }
  // Whether the gaps between the elements are unchanged.
  bool gaps_untouched() const;

 private:
  Tensor memory_;  // [elements and gaps]
  double sentinel_;
  View view_;
};

// Results of attention(), in tensors of the accumulation type.
struct Forward {
  Tensor out;    // [batch, n_head, q_len, d_v]
  Tensor lse;    // [batch, n_head, q_len]
  Tensor probs;  // [batch, n_head, q_len, kv_len]
};
Forward forward(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options);

struct Backward {
  Tensor dq, dk, dv;     // shaped as q, k, v
  Tensor dmask, dsinks;  // shaped as the floating mask and the sinks; empty without them
};
Backward backward(const ConstView& q, const ConstView& k, const ConstView& v, const Forward& forward,
                  const ConstView& dout, const AttentionOptions& options);

// The paths that support a type.
std::vector<AttentionPath> paths(DType dtype = DType::f32);

// Whether the bits are the same.
bool same_bits(const ConstView& a, const ConstView& b);

}  // namespace qkv::test
