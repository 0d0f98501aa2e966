// SPDX-License-Identifier: Apache-2.0
#include "bench_check.h"

#include <fmt/format.h>
#include <qkv/threads.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace qkv::cli {
namespace {

constexpr std::int64_t kRows = 64;  // query rows per call of the reference path
constexpr double kMaxWork = 2.2e9;  // pairs x (d_k + d_v) to recompute: seconds

double element(const ConstView& x, std::int64_t at) {
  switch (x.dtype) {
    case DType::f64:
      return static_cast<const double*>(x.data)[at];
    case DType::bf16:
      return to_f32(static_cast<const bf16*>(x.data)[at]);
    case DType::f16:
      return to_f32(static_cast<const f16*>(x.data)[at]);
    default:
      return static_cast<const float*>(x.data)[at];
  }
}

// Heads [first, first + count) of sequence b in f64: [count, seq, d].
Tensor widened(const ConstView& x, std::int64_t b, std::int64_t first, std::int64_t count) {
  const Dims& s = x.strides;
  Tensor wide({count, x.shape[2], x.shape[3]}, DType::f64);
  double* to = wide.data<double>();
  for (std::int64_t h = first; h < first + count; ++h)
    for (std::int64_t i = 0; i < x.shape[2]; ++i)
      for (std::int64_t c = 0; c < x.shape[3]; ++c) *to++ = element(x, b * s[0] + h * s[1] + i * s[2] + c * s[3]);
  return wide;
}

// Largest difference and value of one array.
struct Comparison {
  double difference = 0, largest = 0;

  void add(double found, double right) {
    const double d = std::abs(found - right);
    if (!(d <= difference)) difference = d;  // keeps NaN
    largest = std::max(largest, std::abs(right));
  }
  void add_to(Deviation& deviation) const {
    const auto raise = [](double& to, double x) {
      if (!(x <= to)) to = x;
    };
    raise(deviation.absolute, difference);
    raise(deviation.relative, difference == 0 ? 0 : difference / largest);
  }
};

// All arrays to compare; empty views are skipped.
struct Subject {
  const AttentionCase& sizes;
  const AttentionOptions& options;
  ConstView q, k, v, out, dout, dq, dk, dv, dmask, dsinks;
};

// The part of a mask for `heads` heads from h, for blocks of `rows` query rows from row0 on (as the batch dimension),
// and for keys [key0, key0 + keys). V is View or ConstView.
template <class V>
V part_of_mask(V mask, std::int64_t b, std::int64_t h, std::int64_t heads, std::int64_t row0, std::int64_t blocks,
               std::int64_t rows, std::int64_t key0, std::int64_t keys) {
  const Dims shape = mask.shape, s = mask.strides;
  std::int64_t at = 0;
  if (shape[0] > 1) at += b * s[0];
  mask.shape[0] = 1;
  if (shape[1] > 1) at += h * s[1], mask.shape[1] = heads;
  if (shape[2] > 1) {
    at += row0 * s[2];
    mask.shape[0] = blocks;
    mask.strides[0] = rows * s[2];
    mask.shape[2] = rows;
  }
  if (shape[3] > 1) at += key0 * s[3], mask.shape[3] = keys;
  using Byte = std::conditional_t<std::is_same_v<V, View>, char, const char>;
  mask.data = static_cast<Byte*>(mask.data) + at * static_cast<std::int64_t>(dtype_size(mask.dtype));
  return mask;
}

ConstView heads_of(ConstView x, std::int64_t first, std::int64_t count) {
  if (!x) return x;
  x.data = static_cast<const char*>(x.data) + first * static_cast<std::int64_t>(dtype_size(x.dtype));
  x.shape[0] = count;
  return x;
}

// The query heads of key head g of sequence b.
class GroupCheck {
 public:
  GroupCheck(const Subject& subject, std::int64_t b, std::int64_t g, std::int64_t row_step)
      : x_(subject),
        b_(b),
        g_(g),
        row_step_(row_step),
        heads_(subject.sizes.n_head / subject.sizes.n_kv_head),
        sequence_(sequence_of(subject.sizes, subject.options, b)),
        q_(widened(x_.q, b, g * heads_, heads_)),
        k_(widened(x_.k, b, g, 1)),
        v_(widened(x_.v, b, g, 1)) {
    if (!x_.dout) return;
    dout_ = widened(x_.dout, b, g * heads_, heads_);
    dk_ = Tensor(k_.shape(), DType::f64);
    dv_ = Tensor(v_.shape(), DType::f64);
  }

  // Compares out, dq, dk and dv; adds the gradients of mask and sinks to dmask and dsinks.
  void run(Deviation& deviation, const View& dmask, const View& dsinks) {
    const std::int64_t rows = sequence_.q_len, whole = rows / kRows;  // blocks
    const std::int64_t at_once = row_step_ == 1 ? num_threads() : 1;
    for (std::int64_t block = 0; block < whole; block += row_step_ * at_once)
      run_rows(block * kRows, std::min(at_once, whole - block), kRows, dmask, dsinks);
    if (rows % kRows > 0) run_rows(whole * kRows, 1, rows % kRows, dmask, dsinks);
    for (std::int64_t i = rows; i < x_.sizes.q_len; ++i) compare_padding(i);
    if (x_.dout) {
      compare_rows(x_.dk, dk_, dk_comparison_);
      compare_rows(x_.dv, dv_, dv_comparison_);
    }
    for (const Comparison& c : {out_comparison_, dq_comparison_, dk_comparison_, dv_comparison_}) c.add_to(deviation);
  }

 private:
  void run_rows(std::int64_t row0, std::int64_t blocks, std::int64_t rows, const View& dmask, const View& dsinks) {
    const AttentionCase& c = x_.sizes;
    const KeyRange first = keys_of(sequence_, x_.options, row0);
    const KeyRange last = keys_of(sequence_, x_.options, row0 + blocks * rows - 1);
    const std::int64_t key0 = std::min(first.begin, c.kv_len), keys = std::max<std::int64_t>(0, last.end - key0);
    AttentionOptions options = x_.options;
    options.path = AttentionPath::reference;
    options.q_lengths.clear();
    options.kv_lengths.clear();
    options.scale = 1 / std::sqrt(static_cast<double>(c.d_k));
    if (options.alignment != Alignment::none) {
      options.alignment = Alignment::start;
      for (std::int64_t i = 0; i < blocks; ++i) options.start.push_back(sequence_.start + row0 + i * rows - key0);
    }
    options.alibi_slopes = heads_of(options.alibi_slopes, g_ * heads_, heads_);
    options.sinks = heads_of(options.sinks, g_ * heads_, heads_);
    if (options.mask)
      options.mask = part_of_mask(options.mask, b_, g_ * heads_, heads_, row0, blocks, rows, key0, keys);

    const ConstView q = blocks_of(q_, row0, blocks, rows), k = keys_from(k_, key0, keys, blocks);
    const ConstView v = keys_from(v_, key0, keys, blocks);
    Tensor out({blocks, heads_, rows, c.d_v}, DType::f64), lse({blocks, heads_, rows}, DType::f64);
    attention(q, k, v, options, {.out = out, .lse = lse, .probs = {}});
    compare_blocks(x_.out, out, row0, out_comparison_);
    if (!x_.dout) return;

    Tensor dq({blocks, heads_, rows, c.d_k}, DType::f64);
    Tensor dk({blocks, 1, keys, c.d_k}, DType::f64), dv({blocks, 1, keys, c.d_v}, DType::f64);
    Tensor dmask_part, dsinks_part;
    if (dmask) dmask_part = Tensor(options.mask.shape, DType::f64);
    if (dsinks) dsinks_part = Tensor({heads_}, DType::f64);
    attention_backward(q, k, v, out, lse, blocks_of(dout_, row0, blocks, rows), options,
                       {.dq = dq, .dk = dk, .dv = dv, .dmask = dmask_part.view(), .dsinks = dsinks_part.view()});
    compare_blocks(x_.dq, dq, row0, dq_comparison_);
    add_keys(dk, key0, dk_);
    add_keys(dv, key0, dv_);
    if (dmask) add_mask(dmask_part, part_of_mask(dmask, b_, g_ * heads_, heads_, row0, blocks, rows, key0, keys));
    for (std::int64_t h = 0; dsinks && h < heads_; ++h)
      static_cast<double*>(dsinks.data)[g_ * heads_ + h] += dsinks_part.data<double>()[h];
  }

  // Rows of [heads, seq, d] as [blocks, heads, rows, d].
  ConstView blocks_of(const Tensor& x, std::int64_t row0, std::int64_t blocks, std::int64_t rows) const {
    const std::int64_t d = x.shape()[2];
    return {x.data<double>() + row0 * d, DType::f64, {blocks, heads_, rows, d}, {rows * d, x.shape()[1] * d, d, 1}};
  }

  // Keys of [1, seq, d] as [blocks, 1, keys, d], the same for every block.
  static ConstView keys_from(const Tensor& x, std::int64_t key0, std::int64_t keys, std::int64_t blocks) {
    const std::int64_t d = x.shape()[2];
    return {x.data<double>() + key0 * d, DType::f64, {blocks, 1, keys, d}, {0, 0, d, 1}};
  }

  static void add_keys(const Tensor& part, std::int64_t key0, Tensor& sum) {
    const std::int64_t d = sum.shape()[2], size = part.shape()[2] * d;
    for (std::int64_t i = 0; i < part.shape()[0]; ++i)
      for (std::int64_t e = 0; e < size; ++e) sum.data<double>()[key0 * d + e] += part.data<double>()[i * size + e];
  }

  static void add_mask(const Tensor& part, const View& sum) {
    const Dims &n = part.shape(), &s = sum.strides;
    const double* from = part.data<double>();
    for (std::int64_t b = 0; b < n[0]; ++b)
      for (std::int64_t h = 0; h < n[1]; ++h)
        for (std::int64_t i = 0; i < n[2]; ++i)
          for (std::int64_t j = 0; j < n[3]; ++j)
            static_cast<double*>(sum.data)[b * s[0] + h * s[1] + i * s[2] + j * s[3]] += *from++;
  }

  // found [batch, heads, seq, d] at this sequence's rows from row0 on, right [blocks, heads, rows, d].
  void compare_blocks(const ConstView& found, const Tensor& right, std::int64_t row0, Comparison& comparison) const {
    const Dims &n = right.shape(), &s = found.strides;
    const double* from = right.data<double>();
    for (std::int64_t block = 0; block < n[0]; ++block)
      for (std::int64_t h = 0; h < n[1]; ++h)
        for (std::int64_t i = 0; i < n[2]; ++i)
          for (std::int64_t c = 0; c < n[3]; ++c) {
            const std::int64_t row = row0 + block * n[2] + i;
            comparison.add(element(found, b_ * s[0] + (g_ * heads_ + h) * s[1] + row * s[2] + c * s[3]), *from++);
          }
  }

  // found [batch, kv heads, seq, d], right [1, seq, d].
  void compare_rows(const ConstView& found, const Tensor& right, Comparison& comparison) const {
    const Dims& s = found.strides;
    const double* from = right.data<double>();
    for (std::int64_t j = 0; j < right.shape()[1]; ++j)
      for (std::int64_t c = 0; c < right.shape()[2]; ++c)
        comparison.add(element(found, b_ * s[0] + g_ * s[1] + j * s[2] + c * s[3]), *from++);
  }

  // Rows past the sequence's length are 0.
  void compare_padding(std::int64_t i) {
    const auto compare = [&](const ConstView& found, Comparison& comparison) {
      const Dims& s = found.strides;
      for (std::int64_t h = g_ * heads_; found && h < (g_ + 1) * heads_; ++h)
        for (std::int64_t c = 0; c < found.shape[3]; ++c)
          comparison.add(element(found, b_ * s[0] + h * s[1] + i * s[2] + c * s[3]), 0);
    };
    compare(x_.out, out_comparison_);
    compare(x_.dq, dq_comparison_);
  }

  const Subject& x_;
  std::int64_t b_, g_, row_step_, heads_;
  Sequence sequence_;
  Tensor q_, dout_;  // [heads, q_len, d]
  Tensor k_, v_;     // [1, kv_len, d]
  Tensor dk_, dv_;   // [1, kv_len, d]
  Comparison out_comparison_, dq_comparison_, dk_comparison_, dv_comparison_;
};

// Work of one key head and its query heads, in the longest sequence.
double group_work(const AttentionCase& c, const AttentionOptions& options) {
  const Sequence s = sequence_of(c, options, 0);
  double pairs = 0;
  for (std::int64_t i = 0; i < s.q_len; i += kRows) {
    const KeyRange first = keys_of(s, options, i), last = keys_of(s, options, std::min(s.q_len, i + kRows) - 1);
    pairs += static_cast<double>(std::max<std::int64_t>(0, last.end - first.begin) * std::min(kRows, s.q_len - i));
  }
  return pairs * static_cast<double>((c.d_k + c.d_v) * (c.n_head / c.n_kv_head));
}

// One out of this many row blocks is recomputed.
std::int64_t row_step(const AttentionCase& c, const AttentionOptions& options) {
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(group_work(c, options) / kMaxWork)));
}

Deviation check(const Subject& x) {
  const AttentionCase& c = x.sizes;
  const std::int64_t groups = c.batch * c.n_kv_head, step = row_step(c, x.options);
  // The last one, and others evenly spaced.
  std::int64_t count =
      std::clamp<std::int64_t>(static_cast<std::int64_t>(kMaxWork / std::max(1.0, group_work(c, x.options))), 1,
                               std::min<std::int64_t>(groups, 3));
  if (x.dmask || x.dsinks) count = groups;  // they sum over all groups
  Tensor dmask, dsinks;
  if (x.dmask) dmask = Tensor(x.dmask.shape, DType::f64);
  if (x.dsinks) dsinks = Tensor(x.dsinks.shape, DType::f64);
  Deviation deviation;
  for (std::int64_t n = 1; n <= count; ++n) {
    const std::int64_t group = groups * n / count - 1;
    GroupCheck(x, group / c.n_kv_head, group % c.n_kv_head, step).run(deviation, dmask.view(), dsinks.view());
  }
  const auto compare_all = [&](const ConstView& found, const Tensor& right) {
    Comparison comparison;
    for (std::int64_t i = 0; i < right.size(); ++i) comparison.add(element(found, i), right.data<double>()[i]);
    comparison.add_to(deviation);
  };
  compare_all(x.dmask, dmask);
  compare_all(x.dsinks, dsinks);
  return deviation;
}

// Sets rows of dout that are not recomputed to 0.
void keep_checked_rows(const AttentionCase& c, std::int64_t step, Tensor& dout) {
  const std::int64_t row = static_cast<std::int64_t>(dtype_size(dout.dtype())) * c.d_v;
  for (std::int64_t h = 0; h < c.batch * c.n_head; ++h)
    for (std::int64_t i = 0; i < c.q_len / kRows * kRows; ++i) {
      if (i / kRows % step == 0) continue;
      char* at = static_cast<char*>(dout.raw()) + (h * c.q_len + i) * row;
      std::fill_n(at, row, '\0');
    }
}

}  // namespace

Deviation run_and_check(AttentionArrays& arrays, bool backward, double limit, const std::string& what) {
  const AttentionCase& c = arrays.sizes;
  arrays.forward();
  if (backward) arrays.backward();
  const std::int64_t step = backward ? row_step(c, arrays.options()) : 1;
  Tensor whole;
  if (step > 1) {
    if (c.heads_inside || c.lengths || c.wants_dmask || c.wants_dsinks)
      throw std::runtime_error("[bench] the shape is too large to check with these options");
    whole = arrays.dout_tensor();
    keep_checked_rows(c, step, arrays.dout_tensor());
    arrays.backward();
  }
  const Deviation deviation =
      check({c, arrays.options(), arrays.q(), arrays.k(), arrays.v(), arrays.out(), arrays.dout(), arrays.dq(),
             arrays.dk(), arrays.dv(), arrays.dmask(), arrays.dsinks()});
  if (step > 1) arrays.dout_tensor() = whole;
  require_right(deviation, arrays.q().dtype, limit, what);
  return deviation;
}

Deviation check_forward_against_f64(const AttentionCase& sizes, const ConstView& q, const ConstView& k,
                                    const ConstView& v, const AttentionOptions& options, const ConstView& out) {
  return check({sizes, options, q, k, v, out, {}, {}, {}, {}, {}, {}});
}

void require_right(const Deviation& deviation, DType dtype, double limit, const std::string& what) {
  if (limit == 0) limit = dtype == DType::f32 ? 2e-5 : dtype == DType::f16 ? 4e-3 : 3e-2;
  if (deviation.relative <= limit) return;
  throw std::runtime_error(fmt::format(
      "[bench] {}: wrong result, not timed: expected a difference from f64 of at most {:.2g} of the largest value; "
      "found {:.2g}",
      what, limit, deviation.relative));
}

}  // namespace qkv::cli
