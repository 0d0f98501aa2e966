// SPDX-License-Identifier: Apache-2.0
// An independent implementation of attention, written from the documentation in qkv/attention.h, in f64, without any
// library code; each result comes with a bound on its rounding error, so that tolerances are derived rather than
// guessed.
#pragma once

#include <cstdint>
#include <vector>

#include "qkv/attention.h"

namespace qkv::test {

struct NaiveInput {
  std::int64_t batch = 1, n_head = 1, n_kv_head = 1, q_len = 1, kv_len = 1, d_k = 1, d_v = 1;
  std::vector<double> q, k, v, dout;  // row-major, shapes as in attention.h
  AttentionOptions options;           // its views are ignored; these are used instead:
  bool has_mask = false, boolean = false;
  Dims mask_shape;
  std::vector<double> mask;           // row-major; 0 or 1 if bool
  std::vector<double> slopes, sinks;  // [n_head] or empty

  std::int64_t start(std::int64_t b) const;
  std::int64_t q_length(std::int64_t b) const;
  std::int64_t kv_length(std::int64_t b) const;
  // Index into mask of (b, h, i, j).
  std::size_t mask_index(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  // Whether lengths, causality and window allow it; ignores the mask.
  bool in_range(std::int64_t b, std::int64_t i, std::int64_t j) const;
  // The dropout factor of a probability: 0 or 1 / (1 - p).
  double dropout_factor(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
  bool may_read(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) const;
};

// A result and, for each element, the sum of the absolute values of its terms, each weighted by the condition number of
// its factors: an implementation with relative rounding error eps should be within a few eps times this.
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
