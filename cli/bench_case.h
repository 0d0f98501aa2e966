// SPDX-License-Identifier: Apache-2.0
// One attention case to measure: sizes, options, arrays and FLOPs.
#pragma once

#include <qkv/attention.h>
#include <qkv/tensor.h>

#include <array>
#include <cstdint>
#include <string>

namespace qkv::cli {

enum class MaskKind : std::uint8_t { none, boolean, additive };

struct AttentionCase {
  std::int64_t batch = 1, n_head = 1, n_kv_head = 1, q_len = 1, kv_len = 1, d_k = 1, d_v = 1;
  bool causal = true;       // bottom-right: the last query attends to every key
  std::int64_t window = 0;  // keys per query, itself included; without `causal` as many after it; 0: all
  // Set only by --matrix:
  bool heads_inside = false;  // memory layout [batch, seq, heads, d]
  bool lengths = false;       // padded: the sequences of a batch get shorter, down to 5/8
  double softcap = 0;
  bool alibi = false, sinks = false;
  MaskKind mask = MaskKind::none;
  std::array<bool, 4> mask_axes = {};  // batch, head, query, key: full (true) or broadcast
  bool wants_dmask = false, wants_dsinks = false;

  std::string shape_text() const;  // "1x12x1024x64:kv=4", as parse_shape parses it
  std::string mask_text() const;   // "causal", "full", "causal window 256", ...
};

// BxHxTxD[:kv=N][:k=LEN][:dv=N][:window=N][:causal|:full]: batch, heads, queries and head size; key heads (H), keys
// (T), value size (D). `defaults` supplies causal and window if the text does not. Throws UsageError.
AttentionCase parse_shape(const std::string& text, const AttentionCase& defaults);

// Uniform pseudo-random numbers with variance 1; the same for the same shape and seed.
Tensor random_tensor(const Dims& shape, DType dtype, std::uint64_t seed);

// The arrays of a case, and its passes.
class AttentionArrays {
 public:
  AttentionArrays(const AttentionCase& sizes, DType dtype);

  void forward();           // out, lse
  void backward();          // gradients, from out and lse
  void run(bool backward);  // one of them

  // Visible query-key pairs over all heads and sequences, and their FLOPs.
  double pairs() const;
  double flops(bool backward) const;

  const AttentionCase sizes;
  // Views [batch, heads, seq, d]; gradients are empty before the first backward().
  ConstView q() const { return heads_first(q_); }
  ConstView k() const { return heads_first(k_); }
  ConstView v() const { return heads_first(v_); }
  ConstView dout() const { return heads_first(dout_); }
  ConstView out() const { return heads_first(out_); }
  ConstView dq() const { return heads_first(dq_); }
  ConstView dk() const { return heads_first(dk_); }
  ConstView dv() const { return heads_first(dv_); }
  const Tensor& dmask() const { return dmask_; }    // shape of the mask
  const Tensor& dsinks() const { return dsinks_; }  // [n_head]
  const AttentionOptions& options() const { return options_; }
  Tensor& dout_tensor() { return dout_; }

 private:
  ConstView heads_first(const Tensor& tensor) const {
    return sizes.heads_inside && tensor.raw() ? swap_axes(tensor.view(), 1, 2) : tensor.view();
  }
  View heads_first(Tensor& tensor) const {
    return sizes.heads_inside && tensor.raw() ? swap_axes(tensor.view(), 1, 2) : tensor.view();
  }
  Dims dims(std::int64_t heads, std::int64_t length, std::int64_t d) const;
  void set_options();
  void make_mask();

  Tensor q_, k_, v_, out_, dout_, dq_, dk_, dv_;  // [batch, heads, seq, d], or [batch, seq, heads, d]
  Tensor lse_;                                    // [batch, n_head, q_len]
  Tensor mask_, dmask_;                           // [batch | 1, n_head | 1, q_len | 1, kv_len | 1]
  Tensor slopes_, sinks_, dsinks_;                // [n_head]
  AttentionOptions options_;
};

// The keys visible to query i of sequence b, ignoring masks.
struct KeyRange {
  std::int64_t begin, end;
};
// The lengths of this sequence and the position of its query 0.
struct Sequence {
  std::int64_t q_len, kv_len, start;
};
Sequence sequence_of(const AttentionCase& sizes, const AttentionOptions& options, std::int64_t b);
KeyRange keys_of(const Sequence& sequence, const AttentionOptions& options, std::int64_t i);

}  // namespace qkv::cli
