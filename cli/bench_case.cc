// SPDX-License-Identifier: Apache-2.0
#include "bench_case.h"

#include <qkv/measure.h>

#include <algorithm>
#include <cmath>

namespace qkv::cli {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014), as a hash of a counter.
std::uint64_t hash(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1).
float uniform(std::uint64_t x) { return static_cast<float>(hash(x) >> 40) * 0x1p-24f; }

}  // namespace

Tensor random_tensor(const Dims& shape, DType dtype, std::uint64_t seed) {
  Tensor tensor(shape, dtype);
  const std::uint64_t first = hash(seed);
  const auto number = [&](std::int64_t i) {
    return (uniform(first + static_cast<std::uint64_t>(i)) - 0.5f) * 3.4641016f;  // sqrt(12)
  };
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    if (dtype == DType::bf16) {
      tensor.data<bf16>()[i] = to_bf16(number(i));
    } else if (dtype == DType::f16) {
      tensor.data<f16>()[i] = to_f16(number(i));
    } else {
      tensor.data<float>()[i] = number(i);
    }
  }
  return tensor;
}

AttentionArrays::AttentionArrays(const AttentionCase& c, DType dtype)
    : sizes(c),
      q_(random_tensor(dims(c.n_head, c.q_len, c.d_k), dtype, 1)),
      k_(random_tensor(dims(c.n_kv_head, c.kv_len, c.d_k), dtype, 2)),
      v_(random_tensor(dims(c.n_kv_head, c.kv_len, c.d_v), dtype, 3)),
      out_(dims(c.n_head, c.q_len, c.d_v), dtype),
      lse_({c.batch, c.n_head, c.q_len}) {
  set_options();
}

Dims AttentionArrays::dims(std::int64_t heads, std::int64_t length, std::int64_t d) const {
  return sizes.heads_inside ? Dims{sizes.batch, length, heads, d} : Dims{sizes.batch, heads, length, d};
}

void AttentionArrays::set_options() {
  const AttentionCase& c = sizes;
  options_.causal = c.causal;
  if (c.causal || c.window > 0 || c.alibi) options_.alignment = Alignment::bottom_right;
  if (c.window > 0) {
    options_.window_left = c.window - 1;
    options_.window_right = c.causal ? -1 : c.window - 1;
  }
  options_.softcap = c.softcap;
  for (std::int64_t b = 0; c.lengths && b < c.batch; ++b) {
    options_.q_lengths.push_back(c.q_len - c.q_len * b * 3 / (8 * std::max<std::int64_t>(1, c.batch - 1)));
    options_.kv_lengths.push_back(c.kv_len - c.kv_len * b * 3 / (8 * std::max<std::int64_t>(1, c.batch - 1)));
  }
  if (c.alibi) {
    slopes_ = Tensor({c.n_head});
    for (std::int64_t h = 0; h < c.n_head; ++h)
      slopes_.data()[h] = std::exp2(-8.0f * static_cast<float>(h + 1) / static_cast<float>(c.n_head));
    options_.alibi_slopes = slopes_;
  }
  if (c.sinks) {
    sinks_ = random_tensor({c.n_head}, DType::f32, 4);
    options_.sinks = sinks_;
  }
  if (c.mask != MaskKind::none) make_mask();
}

void AttentionArrays::make_mask() {
  const AttentionCase& c = sizes;
  const auto& full = c.mask_axes;
  const Dims shape{full[0] ? c.batch : 1, full[1] ? c.n_head : 1, full[2] ? c.q_len : 1, full[3] ? c.kv_len : 1};
  if (c.mask == MaskKind::additive) {
    mask_ = random_tensor(shape, DType::f32, 5);
  } else {
    mask_ = Tensor(shape, DType::boolean);
    // One key in ten is masked.
    for (std::int64_t i = 0; i < mask_.size(); ++i)
      mask_.data<bool>()[i] = uniform(static_cast<std::uint64_t>(i)) >= 0.1f;
  }
  options_.mask = mask_;
}

void AttentionArrays::forward() {
  attention(q(), k(), v(), options_, {.out = heads_first(out_), .lse = lse_.view(), .probs = {}});
}

void AttentionArrays::backward() {
  if (!dq_.raw()) {
    dout_ = random_tensor(out_.shape(), q_.dtype(), 6);
    dq_ = Tensor(q_.shape(), q_.dtype());
    dk_ = Tensor(k_.shape(), q_.dtype());
    dv_ = Tensor(v_.shape(), q_.dtype());
    if (sizes.wants_dmask) dmask_ = Tensor(mask_.shape());
    if (sizes.wants_dsinks) dsinks_ = Tensor(sinks_.shape());
  }
  const AttentionGradients gradients{.dq = heads_first(dq_),
                                     .dk = heads_first(dk_),
                                     .dv = heads_first(dv_),
                                     .dmask = dmask_.view(),
                                     .dsinks = dsinks_.view()};
  attention_backward(q(), k(), v(), out(), lse_, dout(), options_, gradients);
}

void AttentionArrays::run(bool backward) { backward ? this->backward() : forward(); }

double AttentionArrays::pairs() const {
  double all = 0;
  const Dims strides = contiguous_strides(mask_.shape());
  for (std::int64_t b = 0; b < sizes.batch; ++b) {
    const Sequence s = sequence_of(sizes, options_, b);
    if (sizes.mask != MaskKind::boolean) {
      const auto one_head =
          visible_pairs(s.q_len, s.kv_len, s.start, options_.causal, options_.window_left, options_.window_right);
      all += static_cast<double>(one_head * sizes.n_head);
      continue;
    }
    std::int64_t counted = 0;
    const std::int64_t heads = sizes.mask_axes[1] ? sizes.n_head : 1;
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t i = 0; i < s.q_len; ++i) {
        const KeyRange keys = keys_of(s, options_, i);
        const bool* row = mask_.data<bool>() + (sizes.mask_axes[0] ? b * strides[0] : 0) + h * strides[1] +
                          (sizes.mask_axes[2] ? i * strides[2] : 0);
        for (std::int64_t j = keys.begin; j < keys.end; ++j) counted += row[sizes.mask_axes[3] ? j : 0];
      }
    all += static_cast<double>(counted * (sizes.n_head / heads));
  }
  return all;
}

double AttentionArrays::flops(bool backward) const {
  return (backward ? attention_backward_flops : attention_forward_flops)(pairs(), sizes.d_k, sizes.d_v);
}

Sequence sequence_of(const AttentionCase& sizes, const AttentionOptions& options, std::int64_t b) {
  const auto at = static_cast<std::size_t>(b);
  Sequence s{options.q_lengths.empty() ? sizes.q_len : options.q_lengths[at],
             options.kv_lengths.empty() ? sizes.kv_len : options.kv_lengths[at], 0};
  if (options.alignment == Alignment::bottom_right) s.start = s.kv_len - s.q_len;
  return s;
}

KeyRange keys_of(const Sequence& s, const AttentionOptions& options, std::int64_t i) {
  const std::int64_t position = s.start + i;
  std::int64_t begin = 0, end = s.kv_len;
  if (options.causal) end = std::min(end, position + 1);
  if (options.window_right >= 0) end = std::min(end, position + options.window_right + 1);
  if (options.window_left >= 0) begin = std::max(begin, position - options.window_left);
  return {begin, std::max(begin, end)};
}

}  // namespace qkv::cli
