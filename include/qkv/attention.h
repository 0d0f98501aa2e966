// SPDX-License-Identifier: Apache-2.0
// Attention: softmax(mask(q k^T * scale)) v, forward and backward. Vaswani et al., "Attention is all you need" (2017).
//
//   q    [batch, n_head,    q_len,  d_k]       n_head % n_kv_head == 0: query head h uses key head
//   k    [batch, n_kv_head, kv_len, d_k]       h / (n_head / n_kv_head)
//   v    [batch, n_kv_head, kv_len, d_v]       d_v need not equal d_k
//   out  [batch, n_head,    q_len,  d_v]
//
//   scores = (q . k) * scale
//   scores = softcap * tanh(scores / softcap)                 only if softcap > 0
//   scores = scores + mask - slope[head] * |j - position|     a floating mask, ALiBi
//   probs  = softmax of scores over the visible keys, and the head's sink if there is one
//   out    = probs . v                                        each dropped with probability dropout.p, others / (1 - p)
//
// Query i of sequence b is at position start[b] + i in key coordinates. Key j is visible to it unless the bool mask is
// false there, the floating mask is -inf there, j > position (causal), j < position - window_left, j > position +
// window_right, or i or j is past its sequence's length.
// * A query without a visible key gives out = 0, probs = 0, lse = -inf and no gradient, even with a sink.
// * Masked keys and values are never used: NaN there has no effect. NaN in visible ones propagates.
// * Views may have any strides; batch, q_len and kv_len may be 0, the other sizes may not. The result does not depend
//   on strides, on the number of threads, or on the other sequences of the batch.
// * Elements: q, k, v all f32, all bf16 or all f16 (sums and softmax in f32), or all f64 (reference path).
// * Outputs must not overlap inputs. All functions are thread-safe.
// * Bad shapes and options throw std::invalid_argument before anything is written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

// Position of query 0 of each sequence among its keys.
enum class Alignment : std::uint8_t {
  none,          // unspecified: causal, windows and ALiBi are rejected
  top_left,      // start = 0
  bottom_right,  // start = kv_len - q_len, using the sequence's own lengths where given
  start,         // start[b], given
};

enum class AttentionPath : std::uint8_t {
  automatic,  // tiled for f32, bf16 and f16, reference for f64
  reference,  // the equations, scores materialised: O(q_len * kv_len) memory
  tiled,      // online softmax: O(q_len + kv_len) memory
};

// Dropout of probabilities after the softmax (Srivastava et al., 2014), for training. Whether query i keeps key j of
// head h of sequence b depends only on (seed, first_sequence + b, h, i, j): not on path, tiles or threads, and
// attention_backward uses the same mask. lse and probs are those before dropout; dropped keys get weight 0.
struct AttentionDropout {
  double p = 0;                     // 0 (off) <= p < 1, in steps of 2^-32: below half a step it is off
  std::uint64_t seed = 0;           // use a different one in each layer and step
  std::int64_t first_sequence = 0;  // number of the batch's first sequence, so that batches can be split
};

struct AttentionOptions {
  bool causal = false;
  Alignment alignment = Alignment::none;
  std::vector<std::int64_t> start = {};  // [batch], or [1] for all; only with Alignment::start; may be negative
  std::int64_t window_left = -1;         // keys visible before the query's position; -1: all, 0: none
  std::int64_t window_right = -1;        // keys visible after it
  ConstView mask = {};                   // bool (true: visible) or floating (added); broadcasts to
                                         // [batch, n_head, q_len, kv_len]: each axis full or 1, leading ones optional
  std::vector<std::int64_t> q_lengths = {};   // [batch] or empty
  std::vector<std::int64_t> kv_lengths = {};  // [batch] or empty
  std::optional<double> scale = {};           // default 1 / sqrt(d_k)
  double softcap = 0;                         // 0: off
  ConstView alibi_slopes = {};                // [n_head], floating
  ConstView sinks = {};                       // [n_head], floating: a logit in the denominator without a value
  bool require_readable_key = false;          // a query (not past q_lengths) without a visible key is an error
  std::int64_t first_key = 0;  // absolute position of key 0 (rolling cache): sums are split at fixed absolute
                               // positions, so that decode is bit-identical to a full pass; does not affect
                               // masks or alignment
  AttentionDropout dropout = {};
  AttentionPath path = AttentionPath::automatic;
};

// out has v's type or f32 (f64 where the inputs are). The others are f32 (f64). Leave a view empty if you do not need
// it.
struct AttentionResults {
  View out = {};    // [batch, n_head, q_len, d_v]
  View lse = {};    // [batch, n_head, q_len]           natural log of the softmax denominator
  View probs = {};  // [batch, n_head, q_len, kv_len]   exp(scores - lse)
};

void attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
               const AttentionResults& results);

// The same, returning the result as a new tensor of q's type.
Tensor attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options = {});

// The intermediate matrices, for inspection; each [batch, n_head, q_len, kv_len], f32 (f64). Leave a view empty if you
// do not need it. Always computed by the reference path. Memory O(q_len * kv_len).
struct AttentionSteps {
  View scores = {};      // (q . k) * scale
  View softcapped = {};  // after the softcap (the same without one)
  View masked = {};      // with mask and ALiBi added, -inf for keys that are not visible
  View probs = {};
  View products = {};  // q . k, before the scale
};
void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps);
// The same, and the results of that computation (bit-identical to attention() with AttentionPath::reference).
void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps, const AttentionResults& results);

// Gradients, f32 (f64 where the inputs are) or the inputs' type. Overwritten, not accumulated. Leave a view empty if
// you do not need it.
struct AttentionGradients {
  View dq = {};      // shaped like q
  View dk = {};      // like k, summed over the query heads that share it
  View dv = {};      // like v
  View dmask = {};   // like the floating mask, summed over the axes along which it was broadcast
  View dsinks = {};  // [n_head]
};

// out and lse are the results of attention() for the same inputs and options; dout is the gradient of the loss with
// respect to out, of any floating type. Formulas: docs/attention.md.
void attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                        const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                        const AttentionGradients& gradients);

}  // namespace qkv
