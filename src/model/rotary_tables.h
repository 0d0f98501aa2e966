// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary positions, one table for all layers that rotate alike, for the positions asked for so
// far.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/layer_weights.h"

namespace qkv {

class RotaryTables {
 public:
  // Gives each layer the number of its table.
  RotaryTables(const Device& device, std::span<LayerWeights> layers);

  // Tables that have at least so many positions.
  void reach(std::int64_t positions);
  std::span<const RotaryTable> views() const noexcept { return views_; }

 private:
  struct Angles {
    std::vector<double> frequencies;  // [rotated / 2]
    double factor;                    // of cosines and sines
    Tensor cosines, sines;            // [positions, rotated / 2]
    bool operator==(const Angles& other) const { return frequencies == other.frequencies && factor == other.factor; }
  };
  template <class T>
  void fill(Angles& angles) const;

  const Device& device_;
  std::int64_t positions_ = 0;
  std::vector<Angles> angles_;
  std::vector<RotaryTable> views_;
};

}  // namespace qkv
