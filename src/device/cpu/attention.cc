// SPDX-License-Identifier: Apache-2.0
// RoPE (Su et al., "RoFormer", 2021) and attention. Pair (i, i + rotated / 2) of a head is rotated by an angle: the
// pairing of GPT-NeoX, and of LLaMA in Hugging Face's layout.
#include <cmath>

#include "device/cpu/cpu_device.h"
#include "device/cpu/tasks.h"
#include "kernels/row_kernels.h"

namespace qkv {

//   forward    low = low cos - high sin, high = high cos + low sin      backward: the same with -sin
void CpuDevice::rotary(const Sequences& s, const RotaryTable& table, const RotaryHeads& heads,
                       std::int64_t first_position, bool back, const View& x) {
  const std::int64_t half = heads.rotated / 2, ld = x.strides[0];
  with_operand(x.dtype, [&]<class S>(S) {
    parallel_ranges(s.rows(), rows_per_task(heads.heads * heads.head_dim), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const std::int64_t position = first_position + i % s.ctx;
        const float* cosine = data_of<float>(table.cosines) + position * half;  // [half]
        const float* sine = data_of<float>(table.sines) + position * half;      // [half]
        S* row = data_of<S>(x) + i * ld;                                        // [heads, head_dim]
        if (heads.rotated == heads.head_dim)
          row_kernels().of<S>().rotary(1, heads.heads, heads.head_dim, cosine, sine, back, row, ld);
        else
          for (std::int64_t h = 0; h < heads.heads; ++h)
            row_kernels().of<S>().rotary(1, 1, heads.rotated, cosine, sine, back, row + h * heads.head_dim, ld);
      }
    });
  });
}

void CpuDevice::attention(const ConstView& q, const ConstView& k, const ConstView& v, const AttentionOptions& options,
                          const AttentionResults& results) {
  qkv::attention(q, k, v, options, results);
}

void CpuDevice::attention_steps(const ConstView& q, const ConstView& k, const ConstView& v,
                                const AttentionOptions& options, const AttentionSteps& steps,
                                const AttentionResults& results) {
  qkv::attention_steps(q, k, v, options, steps, results);
}

void CpuDevice::attention_backward(const ConstView& q, const ConstView& k, const ConstView& v, const ConstView& out,
                                   const ConstView& lse, const ConstView& dout, const AttentionOptions& options,
                                   const AttentionGradients& gradients) {
  qkv::attention_backward(q, k, v, out, lse, dout, options, gradients);
}

void CpuDevice::sink_gradient(const Sequences& s, std::span<const SumStep> steps, const ConstView& out,
                              const ConstView& dout, const ConstView& lse, const ConstView& sinks,
                              const SlotPointers& dsinks) {
  if (!dsinks[0]) return;
  const std::int64_t n_head = out.shape[1], d = out.shape[3];
  with_operand(out.dtype, [&]<class S>(S) {
    std::vector<float> sums(static_cast<std::size_t>(s.batch * n_head));  // [batch, n_head]
    parallel_for(s.batch * n_head, [&](std::int64_t task) {
      const std::int64_t b = task / n_head, h = task % n_head;
      std::vector<float> a(static_cast<std::size_t>(d)), da(static_cast<std::size_t>(d));
      double sum = 0;
      for (std::int64_t t = 0; t < s.length(b); ++t) {
        const float share = data_of<float>(lse)[b * lse.strides[0] + h * lse.strides[1] + t * lse.strides[2]];
        if (share == -HUGE_VALF) continue;  // fully masked row
        const std::int64_t at = b * out.strides[0] + h * out.strides[1] + t * out.strides[2];
        const std::int64_t dat = b * dout.strides[0] + h * dout.strides[1] + t * dout.strides[2];
        row_kernels().of<S>().to_f32(d, data_of<S>(out) + at, a.data());
        row_kernels().of<S>().to_f32(d, data_of<S>(dout) + dat, da.data());
        double dot = 0;
        for (std::size_t j = 0; j < a.size(); ++j) dot += static_cast<double>(a[j]) * static_cast<double>(da[j]);
        sum -= std::exp(static_cast<double>(data_of<float>(sinks)[h]) - static_cast<double>(share)) * dot;
      }
      sums[static_cast<std::size_t>(task)] = static_cast<float>(sum);
    });
    add_leaves<float>(steps, dsinks, n_head, [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
      for (std::int64_t j = 0; j < count; ++j) leaf[j] = sums[static_cast<std::size_t>(b * n_head + first + j)];
    });
  });
}

void CpuDevice::attend(KvCache& cache, const ConstView& q, const ConstView& k, const ConstView& v,
                       const AttentionOptions& options, const View& out) {
  cache.append(k, v);
  AttentionResults results;
  results.out = out;
  if (out.dtype == DType::f32 || cache.query_dtype() == out.dtype) return cache.attend(q, options, results);
  // A cache of another type gives results in its own type or f32; `out` [1, n_head, rows, d_v] is dense per row.
  const std::int64_t rows = out.shape[2], width = out.shape[1] * out.shape[3];
  thread_local std::vector<float> wide;
  wide.resize(static_cast<std::size_t>(rows * width));
  results.out = {wide.data(), DType::f32, out.shape, out.strides};
  cache.attend(q, options, results);
  row_kernels().of<bf16>().from_f32(rows * width, wide.data(), data_of<bf16>(out));
}

}  // namespace qkv
