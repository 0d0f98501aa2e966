// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich, 2019) and LayerNorm (Ba et al., 2016), each with or without gain and bias:
//
//   rmsnorm     xhat = x / sqrt(mean(x^2) + eps)
//   layernorm   xhat = (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)
//   y = xhat * gain + bias
#include <vector>

#include "device/cpu/cpu_device.h"
#include "device/cpu/tasks.h"
#include "kernels/row_kernels.h"

namespace qkv {
namespace {

RowNorm row_norm(Norm kind) { return kind == Norm::layernorm ? RowNorm::layernorm : RowNorm::rmsnorm; }

}  // namespace

void CpuDevice::norm(const NormParameters& n, const ConstView& x, const View& y, const View& statistics) {
  const std::int64_t d = width_of(x);
  with_operand(y.dtype, [&]<class S>(S) {
    parallel_ranges(rows_of(x), rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      row_kernels().of<S>().norm_forward(row_norm(n.kind), static_cast<float>(n.eps), end - begin, d,
                                         data_of<float>(x) + begin * d, data_of<float>(n.gain), data_of<float>(n.bias),
                                         data_of<S>(y) + begin * d, data_of<float>(statistics) + 2 * begin);
    });
  });
}

void CpuDevice::add_norm(const NormParameters& n, const ConstView& x, const ConstView& delta, const View& sum,
                         const View& y, const View& statistics) {
  const std::int64_t d = width_of(x);
  with_operand(y.dtype, [&]<class S>(S) {
    parallel_ranges(rows_of(x), rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t at = begin * d;
      row_kernels().of<S>().residual_norm_forward(
          row_norm(n.kind), static_cast<float>(n.eps), end - begin, d, data_of<float>(x) + at,
          data_of<float>(delta) + at, data_of<float>(n.gain), data_of<float>(n.bias), data_of<float>(sum) + at,
          data_of<S>(y) + at, data_of<float>(statistics) + 2 * begin);
    });
  });
}

//   dxhat = dy * gain                         dgain: sum of dy * xhat, dbias: sum of dy, over rows
//   rmsnorm     dx (+)= (dxhat - xhat * mean(dxhat * xhat)) / deviation
//   layernorm   dx (+)= (dxhat - mean(dxhat) - xhat * mean(dxhat * xhat)) / deviation
void CpuDevice::norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                              const ConstView& x, const ConstView& statistics, const ConstView& dy, bool add,
                              const View& dx, const NormSlots& slots) {
  const std::int64_t d = width_of(x);
  const float *xs = data_of<float>(x), *stats = data_of<float>(statistics), *dys = data_of<float>(dy);
  const auto sums = [&](std::int64_t b, std::int64_t first, std::int64_t count, float* gain_leaf, float* bias_leaf) {
    const std::int64_t row = b * s.ctx;
    row_kernels().f32.norm_parameter_sums(s.length(b), d, first, count, xs + row * d, stats + 2 * row, dys + row * d,
                                          gain_leaf, bias_leaf);
  };
  if (slots.gain[0])
    add_leaves<float>(steps, slots.gain, d, [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
      sums(b, first, count, leaf, nullptr);
    });
  if (slots.bias[0])
    add_leaves<float>(steps, slots.bias, d, [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
      sums(b, first, count, nullptr, leaf);
    });
  parallel_ranges(rows_of(x), rows_per_task(d), [&](std::int64_t begin, std::int64_t end) {
    row_kernels().f32.norm_backward_input(row_norm(n.kind), end - begin, d, xs + begin * d, data_of<float>(n.gain),
                                          stats + 2 * begin, dys + begin * d, add, data_of<float>(dx) + begin * d);
  });
}

namespace {

// Converts the groups of one row to and from f32.
template <class S>
const float* widened(std::int64_t size, const S* x, std::vector<float>& buffer) {
  if constexpr (std::is_same_v<S, float>) {
    return x;
  } else {
    buffer.resize(static_cast<std::size_t>(size));
    row_kernels().of<S>().to_f32(size, x, buffer.data());
    return buffer.data();
  }
}

}  // namespace

void CpuDevice::group_norm(const NormParameters& n, std::int64_t groups, std::int64_t width, const ConstView& x,
                           const View& y, const View& statistics) {
  const std::int64_t size = groups * width, ldx = x.strides[0], ldy = y.strides[0];
  with_operand(x.dtype, [&]<class S>(S) {
    parallel_ranges(rows_of(x), rows_per_task(size), [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> wide, pairs(static_cast<std::size_t>(2 * groups));  // pairs [groups, 2]: mean, inverse
      for (std::int64_t i = begin; i < end; ++i) {
        row_kernels().of<S>().norm_forward(row_norm(n.kind), static_cast<float>(n.eps), groups, width,
                                           widened(size, data_of<S>(x) + i * ldx, wide), data_of<float>(n.gain),
                                           nullptr, data_of<S>(y) + i * ldy, pairs.data());
        float* inverse = data_of<float>(statistics) + i * groups;  // [groups]
        for (std::int64_t g = 0; g < groups; ++g) inverse[g] = pairs[static_cast<std::size_t>(2 * g + 1)];
      }
    });
  });
}

void CpuDevice::group_norm_backward(const Sequences& s, std::span<const SumStep> steps, const NormParameters& n,
                                    std::int64_t groups, std::int64_t width, const ConstView& x,
                                    const ConstView& statistics, const View& dx, const SlotPointers& dgain) {
  const std::int64_t size = groups * width, ldx = x.strides[0], ldd = dx.strides[0];
  const float* inverses = data_of<float>(statistics);  // [rows, groups]
  with_operand(x.dtype, [&]<class S>(S) {
    if (dgain[0])
      add_leaves<float>(steps, dgain, width, [&](std::int64_t b, std::int64_t first, std::int64_t count, float* leaf) {
        std::vector<float> wide, slopes;
        for (std::int64_t i = b * s.ctx; i < b * s.ctx + s.length(b); ++i) {
          const float* xi = widened(size, data_of<S>(x) + i * ldx, wide);
          const float* dyi = widened(size, static_cast<const S*>(data_of<S>(dx)) + i * ldd, slopes);
          for (std::int64_t g = 0; g < groups; ++g)
            for (std::int64_t j = 0; j < count; ++j) {
              const std::int64_t at = g * width + first + j;
              leaf[j] += dyi[at] * (xi[at] * inverses[i * groups + g]);
            }
        }
      });
    parallel_ranges(rows_of(x), rows_per_task(size), [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> wide, slopes, pairs(static_cast<std::size_t>(2 * groups));
      std::vector<float> result(static_cast<std::size_t>(size));
      for (std::int64_t i = begin; i < end; ++i) {
        S* row = data_of<S>(dx) + i * ldd;  // [groups * width]
        for (std::int64_t g = 0; g < groups; ++g) pairs[static_cast<std::size_t>(2 * g + 1)] = inverses[i * groups + g];
        row_kernels().f32.norm_backward_input(
            row_norm(n.kind), groups, width, widened(size, data_of<S>(x) + i * ldx, wide), data_of<float>(n.gain),
            pairs.data(), widened(size, static_cast<const S*>(row), slopes), false, result.data());
        row_kernels().of<S>().from_f32(size, result.data(), row);
      }
    });
  });
}

}  // namespace qkv
