// SPDX-License-Identifier: Apache-2.0
#include "model/rotary_tables.h"

#include <algorithm>
#include <cmath>

namespace qkv {

RotaryTables::RotaryTables(const Device& device, std::span<LayerWeights> layers) : device_(device) {
  for (LayerWeights& w : layers) {
    if (w.config->positions != Positions::rotary) continue;
    Angles angles{rotary_frequencies(*w.config), w.config->rope_scaling.attention_factor, {}, {}};
    const auto found = std::find(angles_.begin(), angles_.end(), angles);
    w.rotary = static_cast<std::size_t>(found - angles_.begin());
    if (found == angles_.end()) angles_.push_back(std::move(angles));
  }
}

template <class T>
void RotaryTables::fill(Angles& angles) const {
  const auto half = static_cast<std::int64_t>(angles.frequencies.size());
  Tensor cosines(Dims{positions_, half}, dtype_of<T>), sines(Dims{positions_, half}, dtype_of<T>);
  for (std::int64_t p = 0; p < positions_; ++p)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) * angles.frequencies[static_cast<std::size_t>(i)];
      cosines.data<T>()[p * half + i] = static_cast<T>(angles.factor * std::cos(angle));
      sines.data<T>()[p * half + i] = static_cast<T>(angles.factor * std::sin(angle));
    }
  const auto upload = [&](const Tensor& from) {
    Tensor to = device_.allocate(from.shape(), from.dtype());
    device_.from_host(from.raw(), to);
    return to;
  };
  angles.cosines = upload(cosines);
  angles.sines = upload(sines);
}

void RotaryTables::reach(std::int64_t positions) {
  if (positions <= positions_ || angles_.empty()) return;
  positions_ = std::max(positions, 2 * positions_);
  views_.clear();
  for (Angles& angles : angles_) {
    device_.stream_type() == DType::f64 ? fill<double>(angles) : fill<float>(angles);
    views_.push_back({angles.cosines, angles.sines});
  }
}

}  // namespace qkv
