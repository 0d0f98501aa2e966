// SPDX-License-Identifier: Apache-2.0
// Elementwise operations on arrays, and the activations of the MLP:
//
//   relu      max(u, 0)             relu2   max(u, 0)^2           (So et al., "Primer", 2021)
//   gelu      u/2 (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3)))       (Hendrycks and Gimpel, 2016, the tanh form)
//   gelu_erf  u/2 (1 + erf(u / sqrt(2)))
//   silu      u * sigmoid(u)
//   gated     f(gate) * up                                        (Shazeer, "GLU variants", 2020)
#include <cmath>
#include <cstring>

#include "core/float_types.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/tasks.h"
#include "kernels/row_kernels.h"

namespace qkv {
namespace {

RowActivation row_activation(Activation kind) {
  switch (kind) {
    case Activation::relu:
      return RowActivation::relu;
    case Activation::relu2:
      return RowActivation::relu2;
    case Activation::gelu:
      return RowActivation::gelu;
    case Activation::silu:
      return RowActivation::silu;
    case Activation::gelu_erf:
      return RowActivation::gelu_erf;
  }
  return RowActivation::relu;
}

// Calls part(size, offset in up and gate, offset in a) for pieces of [rows, d_ff].
template <class Part>
void for_parts(bool gated, std::int64_t rows, std::int64_t d_ff, const Part& part) {
  if (gated)
    return parallel_ranges(rows, rows_per_task(d_ff), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) part(d_ff, i * 2 * d_ff, i * d_ff);
    });
  parallel_ranges(rows * d_ff, kElementsPerTask,
                  [&](std::int64_t begin, std::int64_t end) { part(end - begin, begin, begin); });
}

}  // namespace

void CpuDevice::activation(Activation kind, bool gated, const ConstView& up, const View& a) {
  const std::int64_t d_ff = width_of(a), from_gate = gated ? d_ff : 0;
  with_operand(up.dtype, [&]<class S>(S) {
    for_parts(gated, rows_of(up), d_ff, [&](std::int64_t size, std::int64_t at, std::int64_t out) {
      const S* first = data_of<S>(up) + at;
      row_kernels().of<S>().activation_forward(row_activation(kind), size, gated ? first : nullptr, first + from_gate,
                                               data_of<S>(a) + out);
    });
  });
}

void CpuDevice::activation_backward(Activation kind, bool gated, const ConstView& up, const ConstView& da,
                                    const View& dup) {
  const std::int64_t d_ff = width_of(da), from_gate = gated ? d_ff : 0;
  with_operand(up.dtype, [&]<class S>(S) {
    for_parts(gated, rows_of(up), d_ff, [&](std::int64_t size, std::int64_t at, std::int64_t out) {
      const S* first = data_of<S>(up) + at;
      S* dfirst = data_of<S>(dup) + at;
      row_kernels().of<S>().activation_backward(row_activation(kind), size, gated ? first : nullptr, first + from_gate,
                                                data_of<S>(da) + out, gated ? dfirst : nullptr, dfirst + from_gate);
    });
  });
}

void CpuDevice::from_host(const void* from, const View& to) const {
  std::memcpy(to.data, from, static_cast<std::size_t>(size_of(to)) * dtype_size(to.dtype));
}

void CpuDevice::to_host(const ConstView& from, void* to) const {
  std::memcpy(to, from.data, static_cast<std::size_t>(size_of(from)) * dtype_size(from.dtype));
}

void CpuDevice::add(const ConstView& a, const ConstView& b, const View& sum) {
  parallel_ranges(size_of(a), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    row_kernels().f32.add(end - begin, data_of<float>(a) + begin, data_of<float>(b) + begin,
                          data_of<float>(sum) + begin);
  });
}

void CpuDevice::scale(double factor, const View& x) {
  with_operand(x.dtype, [&]<class S>(S) {
    parallel_ranges(size_of(x), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      S* y = data_of<S>(x);
      for (std::int64_t i = begin; i < end; ++i) y[i] = narrow<S>(widen(y[i]) * static_cast<float>(factor));
    });
  });
}

void CpuDevice::add_one(const ConstView& x, const View& y) const {
  for (std::int64_t i = 0; i < size_of(x); ++i) data_of<float>(y)[i] = 1 + data_of<float>(x)[i];
}

void CpuDevice::softcap(double cap, const View& x) {
  const auto c = static_cast<float>(cap);
  parallel_ranges(size_of(x), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    float* y = data_of<float>(x);
    for (std::int64_t i = begin; i < end; ++i) y[i] = c * std::tanh(y[i] / c);
  });
}

void CpuDevice::softcap_backward(double cap, const ConstView& y, const View& dx) {
  const auto c = static_cast<float>(cap);
  with_operand(dx.dtype, [&]<class S>(S) {
    parallel_ranges(size_of(dx), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      const float* capped = data_of<float>(y);
      S* slope = data_of<S>(dx);
      for (std::int64_t i = begin; i < end; ++i) {
        const float share = capped[i] / c, factor = 1 - share * share;
        if constexpr (std::is_same_v<S, float>)
          slope[i] *= factor;
        else
          slope[i] = narrow<S>(widen(slope[i]) * factor);
      }
    });
  });
}

void CpuDevice::convert(const ConstView& from, const View& to) const {
  parallel_ranges(size_of(from), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
    if (from.dtype == to.dtype)
      with_operand(to.dtype, [&]<class S>(S) {
        std::copy(data_of<S>(from) + begin, data_of<S>(from) + end, data_of<S>(to) + begin);
      });
    else if (to.dtype == DType::bf16)
      row_kernels().half.from_f32(end - begin, data_of<float>(from) + begin, data_of<bf16>(to) + begin);
    else
      row_kernels().half.to_f32(end - begin, data_of<bf16>(from) + begin, data_of<float>(to) + begin);
  });
}

void CpuDevice::fill_zero(const View& x) {
  std::fill_n(static_cast<char*>(x.data), size_of(x) * static_cast<std::int64_t>(dtype_size(x.dtype)), char{0});
}

void CpuDevice::dropout(const Dropout& dropout, std::int64_t first, const ConstView& x, const View& y) {
  const DropoutKey key{dropout.seed, dropout.threshold, static_cast<float>(dropout.scale)};
  with_operand(y.dtype, [&]<class S>(S) {
    parallel_ranges(size_of(x), kElementsPerTask, [&](std::int64_t begin, std::int64_t end) {
      row_kernels().of<S>().dropout(key, static_cast<std::uint64_t>(first + begin), end - begin,
                                    data_of<float>(x) + begin, data_of<S>(y) + begin);
    });
  });
}

}  // namespace qkv
