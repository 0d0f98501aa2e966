// SPDX-License-Identifier: Apache-2.0
#include "attention/problem.h"

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "attention/elements.h"
#include "attention/mask.h"

namespace qkv {
namespace {

// Bound on starts, lengths and first_key, so that sums of a few of them cannot overflow; larger windows are unlimited.
constexpr std::int64_t kFarthest = std::int64_t{1} << 40;

[[noreturn]] void fail(const std::string& expected, const std::string& found) {
  throw std::invalid_argument("[attention] " + expected + "; found " + found);
}

std::string number(double x) {
  std::string text = std::to_string(x);
  return std::isfinite(x) && (std::abs(x) >= 1e15 || (x != 0 && std::abs(x) < 1e-4)) ? "a value out of range" : text;
}

void check_input(const std::string& name, const ConstView& view) {
  if (view.rank() != 4) {
    const char* axes = name == "q"
                           ? "[batch, n_head, q_len, d_k]"
                           : (name == "k" ? "[batch, n_kv_head, kv_len, d_k]" : "[batch, n_kv_head, kv_len, d_v]");
    fail(name + " must be " + axes, "shape " + to_string(view.shape));
  }
  const bool blocks = view.dtype == DType::q8_0 && name != "q";
  if (!is_floating(view.dtype) && !blocks) fail(name + " must be floating", std::string(dtype_name(view.dtype)));
  const std::int64_t count = element_count(view.shape);
  if (view.shape[1] == 0) fail(name + " must have at least one head", "shape " + to_string(view.shape));
  if (view.shape[3] == 0) fail(name + " must have a head dimension of at least 1", "shape " + to_string(view.shape));
  if (view.shape[2] > kFarthest) fail(name + " may have at most 2^40 positions", "shape " + to_string(view.shape));
  if (!view && count > 0) fail(name + " must be given", "a view without data");
  const auto whole = [&](int axis) { return view.strides[axis] % block_size(view.dtype).elements == 0; };
  if (blocks && !(whole(0) && whole(1) && whole(2) && view.strides[3] == 1))
    fail(name + " of q8_0 must have rows of whole blocks", "strides " + to_string(view.strides));
}

void check_inputs(const ConstView& q, const ConstView& k, const ConstView& v) {
  check_input("q", q);
  check_input("k", k);
  check_input("v", v);
  const bool same = k.dtype == q.dtype || (k.dtype == DType::q8_0 && q.dtype == DType::f32);
  if (!same || v.dtype != k.dtype) {
    fail("q, k and v must have the same type", std::string(dtype_name(q.dtype)) + ", " +
                                                   std::string(dtype_name(k.dtype)) + " and " +
                                                   std::string(dtype_name(v.dtype)));
  }
  const std::string shapes = "q " + to_string(q.shape) + ", k " + to_string(k.shape) + ", v " + to_string(v.shape);
  if (k.shape[0] != q.shape[0] || v.shape[0] != q.shape[0]) fail("q, k and v must have the same batch", shapes);
  if (k.shape[1] != v.shape[1]) fail("k and v must have the same number of heads", shapes);
  if (k.shape[2] != v.shape[2]) fail("k and v must have the same number of keys", shapes);
  if (k.shape[3] != q.shape[3]) fail("q and k must have the same head dimension", shapes);
  if (q.shape[1] % k.shape[1] != 0) {
    fail("n_head must be a multiple of n_kv_head", std::to_string(q.shape[1]) + " and " + std::to_string(k.shape[1]));
  }
}

void set_sizes(AttentionProblem& p, const ConstView& q, const ConstView& k, const ConstView& v) {
  p.batch = q.shape[0];
  p.n_head = q.shape[1];
  p.n_kv_head = k.shape[1];
  p.q_len = q.shape[2];
  p.kv_len = k.shape[2];
  p.d_k = q.shape[3];
  p.d_v = v.shape[3];
  p.group = p.n_head / p.n_kv_head;
  p.q = q;
  p.k = k;
  p.v = v;
}

// Whether a number is finite in the accumulation type.
bool fits(double x, DType dtype) noexcept {
  return std::isfinite(x) && (dtype == DType::f64 || std::abs(x) <= double{std::numeric_limits<float>::max()});
}

void set_scale(AttentionProblem& p, const AttentionOptions& options) {
  p.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(p.d_k)));
  if (!fits(p.scale, p.q.dtype)) fail("scale must be finite", number(p.scale));
  p.softcap = options.softcap;
  if (!fits(p.softcap, p.q.dtype) || p.softcap < 0 ||
      (p.softcap > 0 && p.softcap < double{std::numeric_limits<float>::min()})) {
    fail("softcap must be 0 (off) or a positive finite number", number(p.softcap));
  }
}

std::int64_t checked_window(const char* name, std::int64_t window) {
  if (window < -1) fail(std::string(name) + " must be -1 (unlimited) or at least 0", std::to_string(window));
  return window > 4 * kFarthest ? -1 : window;
}

// Checks the lengths of the sequences; empty means full length.
void check_lengths(const char* name, const std::vector<std::int64_t>& lengths, std::int64_t batch, std::int64_t most) {
  if (lengths.empty()) return;
  if (static_cast<std::int64_t>(lengths.size()) != batch) {
    fail(std::string(name) + " must have one length per sequence (" + std::to_string(batch) + ")",
         std::to_string(lengths.size()));
  }
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || lengths[b] > most) {
      fail(std::string(name) + " must be from 0 to " + std::to_string(most),
           std::to_string(lengths[b]) + " for sequence " + std::to_string(b));
    }
  }
}

void check_start(const AttentionOptions& options, std::int64_t batch) {
  const auto count = static_cast<std::int64_t>(options.start.size());
  if (options.alignment != Alignment::start) {
    if (count > 0) fail("start is only used with the alignment 'start'", "another alignment");
    return;
  }
  if (count != batch && count != 1) {
    fail("start must have one position, or one per sequence (" + std::to_string(batch) + ")", std::to_string(count));
  }
  for (std::int64_t start : options.start) {
    if (start < -kFarthest || start > kFarthest) fail("start must be from -2^40 to 2^40", std::to_string(start));
  }
}

void set_positions(AttentionProblem& p, const AttentionOptions& options) {
  p.causal = options.causal;
  p.window_left = checked_window("window_left", options.window_left);
  p.window_right = checked_window("window_right", options.window_right);
  p.first_key = options.first_key;
  if (p.first_key < 0 || p.first_key > kFarthest) fail("first_key must be from 0 to 2^40", std::to_string(p.first_key));
  if (options.alignment == Alignment::none) {
    const char* needs = options.causal ? "causal" : (options.alibi_slopes ? "alibi_slopes" : nullptr);
    if (options.window_left != -1 || options.window_right != -1) needs = "a window";
    if (needs) fail(std::string(needs) + " needs an alignment: top_left, bottom_right or start", "none");
  }
  check_lengths("q_lengths", options.q_lengths, p.batch, p.q_len);
  check_lengths("kv_lengths", options.kv_lengths, p.batch, p.kv_len);
  check_start(options, p.batch);
  for (std::int64_t b = 0; b < p.batch; ++b) {
    const auto i = static_cast<std::size_t>(b);
    SequenceSpan s{options.q_lengths.empty() ? p.q_len : options.q_lengths[i],
                   options.kv_lengths.empty() ? p.kv_len : options.kv_lengths[i], 0};
    if (options.alignment == Alignment::bottom_right) s.start = s.kv_len - s.q_len;
    if (options.alignment == Alignment::start)
      s.start = options.start.size() == 1 ? options.start[0] : options.start[i];
    p.sequences.push_back(s);
  }
}

void set_mask(AttentionProblem& p, const ConstView& mask) {
  p.boolean_mask = mask && mask.dtype == DType::boolean;
  if (!mask) return;
  if (!p.boolean_mask && !is_floating(mask.dtype)) {
    fail("mask must be bool (true: may attend) or floating (added)", std::string(dtype_name(mask.dtype)));
  }
  p.mask = broadcast_to_scores(p, mask, "mask");
}

std::vector<double> head_values(const char* name, const ConstView& view, const AttentionProblem& p) {
  std::vector<double> values;
  if (!view) return values;
  if (view.rank() != 1 || view.shape[0] != p.n_head || !is_floating(view.dtype)) {
    fail(std::string(name) + " must be floating, one per query head, [" + std::to_string(p.n_head) + "]",
         std::string(dtype_name(view.dtype)) + " " + to_string(view.shape));
  }
  for (std::int64_t h = 0; h < p.n_head; ++h) values.push_back(load_element<double>(view, h * view.strides[0]));
  return values;
}

void set_dropout(AttentionProblem& p, const AttentionDropout& dropout) {
  constexpr std::int64_t kMax = std::int64_t{1} << 32;  // planes, queries and keys have 32-bit indices
  if (!(dropout.p >= 0 && dropout.p < 1)) fail("dropout.p must be from 0 to below 1", number(dropout.p));
  if (dropout.p == 0) return;
  if (p.q_len > kMax || p.kv_len > kMax) fail("dropout supports at most 2^32 queries and keys", to_string(p.k.shape));
  if (dropout.first_sequence < 0 || dropout.first_sequence > kMax / p.n_head - p.batch)
    fail("dropout.first_sequence must be from 0, with all heads of all sequences below 2^32",
         std::to_string(dropout.first_sequence));
  p.dropout = Dropout(dropout.p, dropout.seed);
  p.first_sequence = dropout.first_sequence;
}

bool row_is_readable(const AttentionProblem& p, std::int64_t b, std::int64_t h, std::int64_t i) noexcept {
  const IndexRange keys = attendable_keys(p, b, i);
  if (!p.mask) return !keys.empty();
  for (std::int64_t j = keys.begin; j < keys.end; ++j) {
    if (mask_bias<float>(p, b, h, i, j) != -std::numeric_limits<float>::infinity()) return true;
  }
  return false;
}

}  // namespace

template <class V>
V broadcast_to_scores(const AttentionProblem& p, const V& view, const char* name) {
  const Dims full{p.batch, p.n_head, p.q_len, p.kv_len};
  const int missing = 4 - view.rank();
  bool fits_in = missing >= 0;
  V wide = view;
  wide.shape = full;
  wide.strides = Dims{0, 0, 0, 0};
  for (int axis = 0; axis < view.rank() && fits_in; ++axis) {
    const std::int64_t size = view.shape[axis], whole = full[axis + missing];
    fits_in = size == whole || size == 1;
    if (size == whole && size != 1) wide.strides[axis + missing] = view.strides[axis];
  }
  if (!fits_in) {
    fail(std::string(name) + " must broadcast to [batch, n_head, q_len, kv_len] = " + to_string(full),
         "shape " + to_string(view.shape));
  }
  return wide;
}
template ConstView broadcast_to_scores(const AttentionProblem&, const ConstView&, const char*);
template View broadcast_to_scores(const AttentionProblem&, const View&, const char*);

AttentionProblem make_problem(const ConstView& q, const ConstView& k, const ConstView& v,
                              const AttentionOptions& options) {
  AttentionProblem p{};
  check_inputs(q, k, v);
  set_sizes(p, q, k, v);
  set_scale(p, options);
  set_positions(p, options);
  set_mask(p, options.mask);
  p.slopes = head_values("alibi_slopes", options.alibi_slopes, p);
  for (double slope : p.slopes) {
    if (!fits(slope, q.dtype)) fail("alibi_slopes must be finite", number(slope));
  }
  p.sinks = head_values("sinks", options.sinks, p);
  p.require_readable_key = options.require_readable_key;
  set_dropout(p, options.dropout);
  return p;
}

void check_readable(const AttentionProblem& p) {
  const bool heads_alike = !p.mask || p.mask.strides[1] == 0;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < (heads_alike ? 1 : p.n_head); ++h) {
      for (std::int64_t i = 0; i < p.sequences[static_cast<std::size_t>(b)].q_len; ++i) {
        if (row_is_readable(p, b, h, i)) continue;
        fail("every query must have a key that it may attend to (require_readable_key)",
             "none for query " + std::to_string(i) + " of head " + std::to_string(h) + " of sequence " +
                 std::to_string(b));
      }
    }
  }
}

}  // namespace qkv
