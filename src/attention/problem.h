// SPDX-License-Identifier: Apache-2.0
// An attention call after validation: every size, option and default resolved.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dropout.h"
#include "qkv/attention.h"

namespace qkv {

// One sequence of the batch.
struct SequenceSpan {
  std::int64_t q_len;   // number of valid queries; later ones give 0
  std::int64_t kv_len;  // number of valid keys; later ones are never read
  std::int64_t start;   // position of query 0 in key coordinates
};

struct AttentionProblem {
  std::int64_t batch, n_head, n_kv_head, q_len, kv_len, d_k, d_v;
  std::int64_t group;     // query heads that share a key head
  ConstView q, k, v;      // rank 4, the caller's strides; k and v may be q8_0 where q is f32
  double scale, softcap;  // softcap 0: off
  bool causal;
  std::int64_t window_left, window_right;  // -1: unlimited
  std::int64_t first_key;
  ConstView mask;                       // empty, or rank 4 with the full shape and stride 0 along broadcast axes
  bool boolean_mask;                    // mask is bool; otherwise it is floating and added
  std::vector<double> slopes;           // [n_head] or empty
  std::vector<double> sinks;            // [n_head] or empty
  std::vector<SequenceSpan> sequences;  // [batch]
  bool require_readable_key;
  Dropout dropout;              // false: none
  std::int64_t first_sequence;  // index of sequence 0 for dropout

  // The plane (core/dropout.h) of head h of sequence b.
  std::uint32_t plane(std::int64_t b, std::int64_t h) const noexcept {
    return static_cast<std::uint32_t>((first_sequence + b) * n_head + h);
  }
};

// Checks shapes, types and options; throws std::invalid_argument. Does not read the elements of q, k, v.
AttentionProblem make_problem(const ConstView& q, const ConstView& k, const ConstView& v,
                              const AttentionOptions& options);

// Throws std::invalid_argument naming the first row that may attend to no key (for require_readable_key).
void check_readable(const AttentionProblem& problem);

// Broadcasts a view to rank 4 with the full scores shape [batch, n_head, q_len, kv_len] and stride 0 along the
// broadcast axes. Throws std::invalid_argument. V is View or ConstView.
template <class V>
V broadcast_to_scores(const AttentionProblem& problem, const V& view, const char* name);

// The two paths. The caller has checked results and gradients; empty views are not requested. gradients.dmask has the
// shape of the caller's mask: up to 4 axes, size 1 where it is summed.
void reference_forward(const AttentionProblem& p, const AttentionResults& results, const AttentionSteps& steps);
void reference_backward(const AttentionProblem& p, const ConstView& out, const ConstView& lse, const ConstView& dout,
                        const AttentionGradients& gradients);
void tiled_forward(const AttentionProblem& p, const AttentionResults& results);
void tiled_backward(const AttentionProblem& p, const ConstView& out, const ConstView& lse, const ConstView& dout,
                    const AttentionGradients& gradients);

}  // namespace qkv
