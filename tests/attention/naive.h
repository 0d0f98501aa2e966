// SPDX-License-Identifier: Apache-2.0
// Attention written a second time, straight from the words of qkv/attention.h, in f64, without any of the library's
// code; and beside each result a bound of its rounding error, so that no tolerance is a guess.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/attention.h"

namespace qkv::test {

struct NaiveInput {
  std::int64_t batch = 1, n_head = 1, n_kv_head = 1, q_len = 1, kv_len = 1, d_k = 1, d_v = 1;
  std::vector<double> q, k, v, dout;  // row-major, shapes as in attention.h
  AttentionOptions options;           // its views are not looked at; these are:
  bool has_mask = false, boolean = false;
  Dims mask_shape;
  std::vector<double> mask;           // row-major; 0 or 1 if boolean
  std::vector<double> slopes, sinks;  // [n_head] or empty

  std::int64_t start(std::int64_t b) const;
  std::int64_t q_length(std::int64_t b) const;
  std::int64_t kv_length(std::int64_t b) const;
  // Index into mask of (b, h, i, j).
  std::size_t mask_index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  // Lengths, causality and window allow it; the mask is another matter.
  bool in_range(std::int64_t b, std::int64_t i, std::int64_t j) const;
  // What dropout multiplies a probability by: 0 or 1 / (1 - p).
  double dropout_factor(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  bool may_read(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
};

// A result and, for each element, the sum of the absolute values of the terms that it is made of, each weighted by the
// condition of its factors: an implementation of relative rounding error eps is expected within a few eps times this.
struct Bounded {
  std::vector<double> values, bounds;
  explicit Bounded(std::int64_t size = 0)
      : values(static_cast<std::size_t>(size)), bounds(static_cast<std::size_t>(size)) {}
};

struct NaiveOutput {
  Bounded out, lse, probs, dq, dk, dv, dmask, dsinks;
};

NaiveOutput naive_attention(const NaiveInput& input);

}  // namespace qkv::test
