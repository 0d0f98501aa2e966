// SPDX-License-Identifier: Apache-2.0
// The sink that records activations.
#include <algorithm>
#include <array>

#include "inspect/checks.h"
#include "inspect/recorded.h"
#include "qkv/inspect.h"

namespace qkv {
namespace {

float as_f32(float x) noexcept { return x; }
float as_f32(double x) noexcept { return static_cast<float>(x); }
float as_f32(bf16 x) noexcept { return to_f32(x); }

// view: one sequence [1, ...] of up to four axes -> the same without the first axis, row-major
template <class E>
Tensor copied(const ConstView& view) {
  std::array<std::int64_t, 3> sizes{1, 1, 1}, strides{0, 0, 0};
  const int rank = view.rank() - 1;
  for (int axis = 0; axis < rank; ++axis) {
    sizes[static_cast<std::size_t>(3 - rank + axis)] = view.shape[axis + 1];
    strides[static_cast<std::size_t>(3 - rank + axis)] = view.strides[axis + 1];
  }
  Tensor tensor(Dims(std::span(view.shape.begin() + 1, view.shape.end())));
  float* to = tensor.data<float>();  // [sizes]
  const E* from = static_cast<const E*>(view.data);
  for (std::int64_t a = 0; a < sizes[0]; ++a)
    for (std::int64_t b = 0; b < sizes[1]; ++b)
      for (std::int64_t c = 0; c < sizes[2]; ++c)
        *to++ = as_f32(from[a * strides[0] + b * strides[1] + c * strides[2]]);
  return tensor;
}

}  // namespace

Tensor recorded(const ConstView& view) {
  if (view.rank() < 2 || view.rank() > 4 || view.shape[0] != 1)
    refuse_inspect("one sequence [1, ...] of two to four axes", to_string(view.shape));
  switch (view.dtype) {
    case DType::f32:
      return copied<float>(view);
    case DType::f64:
      return copied<double>(view);
    case DType::bf16:
      return copied<bf16>(view);
    default:
      refuse_inspect("f32, f64 or bf16 activations", std::string(dtype_name(view.dtype)));
  }
}

TraceRecorder::TraceRecorder(std::int64_t n_layer, std::vector<TraceSite> sites)
    : layers(static_cast<std::size_t>(std::max<std::int64_t>(n_layer, 0))), wanted_(kTraceSites, sites.empty()) {
  for (const TraceSite site : sites) wanted_[static_cast<std::size_t>(site)] = true;
}

bool TraceRecorder::wants(TraceSite site, std::int64_t layer) const {
  const std::int64_t first = static_cast<int>(site) < kLayerSites ? 0 : -1;
  return layer >= first && layer < static_cast<std::int64_t>(layers.size()) && wanted_[static_cast<std::size_t>(site)];
}

void TraceRecorder::visit(const Traced& traced) {
  Tensor& to =
      traced.layer < 0 ? around.at(traced.site) : layers[static_cast<std::size_t>(traced.layer)].at(traced.site);
  to = recorded(traced.values);
}

}  // namespace qkv
