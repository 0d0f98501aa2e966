// SPDX-License-Identifier: Apache-2.0
// Attention: softmax(mask(q k^T * scale)) v, forward and backward. Vaswani et al., "Attention is all you need" (2017).
//
//   q    [batch, n_head,    q_len,  d_k]       n_head % n_kv_head == 0: query head h reads key head
//   k    [batch, n_kv_head, kv_len, d_k]       h / (n_head / n_kv_head)
//   v    [batch, n_kv_head, kv_len, d_v]       d_v need not equal d_k
//   out  [batch, n_head,    q_len,  d_v]
//
//   scores = (q . k) * scale
//   scores = softcap * tanh(scores / softcap)                 only if softcap > 0
//   scores = scores + mask - slope[head] * |j - position|     a floating mask, ALiBi
//   probs  = softmax of scores over the keys that may be read, and the head's sink if there is one
//   out    = probs . v                                        each probability dropped with dropout.p, others / (1 - p)
//
// Query i of sequence b stands at position start[b] + i in key coordinates. It may read key j unless the bool mask is
// false there, the floating mask is -inf there, j > position (causal), j < position - window_left,
// j > position + window_right, or i or j lies past its sequence's length.
// * A row that may read nothing gives out = 0, probs = 0, lse = -inf and no gradient, also where it has a sink.
// * What may not be read is never used: NaN there changes nothing. NaN in what may be read comes out as NaN.
// * Views have any strides; batch, q_len and kv_len may be 0, the other sizes may not. The result does not depend on
//   strides, on the number of threads, or on what else is in the batch.
// * Elements: q, k, v all f32, all bf16 or all f16 (sums and softmax in f32), or all f64 (reference path).
// * Outputs must not overlap inputs. All functions may be called from several threads at once.
// * Bad shapes and options throw std::invalid_argument before anything is written.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "qkv/tensor.h"

namespace qkv {

// Where query 0 of each sequence stands among its keys.
enum class Alignment : std::uint8_t {
  none,          // not said: causal, windows and ALiBi are refused
  top_left,      // start = 0
  bottom_right,  // start = kv_len - q_len, of that very sequence where lengths are given
  start,         // start[b], given
};

enum class AttentionPath : std::uint8_t {
  automatic,  // tiled where it can (f32, bf16, f16), reference for f64
  reference,  // the equations, scores materialised: O(q_len * kv_len) memory
  tiled,      // online softmax: O(q_len + kv_len) memory
};

// Dropout of probabilities after the softmax (Srivastava et al., 2014), for training. Whether query i keeps key j of
// head h of sequence b is a function of (seed, first_sequence + b, h, i, j) alone, whichever path, tiles or threads
// compute it, and in attention_backward the same. lse and probs are those without dropout; what is dropped is read with
// weight 0.
struct AttentionDropout {
  double p = 0;                     // from 0 (off) to below 1, in steps of 2^-32: below half a step it is off
  std::uint64_t seed = 0;           // another one in each layer and step
  std::int64_t first_sequence = 0;  // the number of the batch's first sequence, so that batches may be cut
};

struct AttentionOptions {
  bool causal = false;
  Alignment alignment = Alignment::none;
  std::vector<std::int64_t> start = {};  // [batch], or [1] for all; with Alignment::start only; may be negative
  std::int64_t window_left = -1;         // keys before the position that may be read; -1: all, 0: none
  std::int64_t window_right = -1;        // keys after it
  ConstView mask = {};                   // bool (true: may read) or floating (added); broadcasts to
                                         // [batch, n_head, q_len, kv_len]: each axis full or 1, leading ones may lack
  std::vector<std::int64_t> q_lengths = {};   // [batch] or empty
  std::vector<std::int64_t> kv_lengths = {};  // [batch] or empty
  std::optional<double> scale = {};           // default 1 / sqrt(d_k)
  double softcap = 0;                         // 0: off
  ConstView alibi_slopes = {};                // [n_head], floating
  ConstView sinks = {};                       // [n_head], floating: a logit in the denominator that reads no value
  bool require_readable_key = false;          // a row with nothing to read is an error (rows past q_lengths are exempt)
  std::int64_t first_key = 0;  // the absolute position of key 0 (a rolled cache): where sums are split is
                               // counted from position 0, so that decoding keeps the bits of a full pass;
                               // it moves neither masks nor alignment
  AttentionDropout dropout = {};
  AttentionPath path = AttentionPath::automatic;
};

// out has v's type or f32 (f64 where the inputs are). Optional results, empty view = not wanted, f32 (f64):
struct AttentionResults {
  View out = {};    // [batch, n_head, q_len, d_v]
  View lse = {};    // [batch, n_head, q_len]           natural logarithm of the softmax's denominator
  View probs = {};  // [batch, n_head, q_len, kv_len]   exp(scores - lse)
};

void attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
               const AttentionResults& results);

// The same with a tensor made for the result, in q's type.
Tensor attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options = {});

// The matrices between q, k and out, for people who look inside; each [batch, n_head, q_len, kv_len], f32 (f64), empty
// view = not wanted. Always computed by the reference path. Memory O(q_len * kv_len).
struct AttentionSteps {
  View scores = {};      // (q . k) * scale
  View softcapped = {};  // after the softcap (the same without one)
  View masked = {};      // with mask and ALiBi added, -inf where reading is not allowed
  View probs = {};
  View products = {};  // q . k, before the scale
};
void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps);
// The same, and the results of that very computation (attention() with AttentionPath::reference gives their bits).
void attention_steps(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                     const AttentionSteps& steps, const AttentionResults& results);

// Gradients, f32 (f64 where the inputs are) or the inputs' type. Empty view = not wanted. Overwritten, not added to.
struct AttentionGradients {
  View dq = {};      // as q
  View dk = {};      // as k, summed over the query heads that share it
  View dv = {};      // as v
  View dmask = {};   // as the floating mask, summed over the axes along which it was broadcast
  View dsinks = {};  // [n_head]
};

// out and lse are what attention() gave for the same inputs and options; dout is the gradient of the loss with respect
// to out, any of the floating types. Formulas: docs/attention.md.
void attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                        const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                        const AttentionGradients& gradients);

}  // namespace qkv
