// SPDX-License-Identifier: Apache-2.0
// Cosines and sines of rotary positions, up to the largest position requested so far; layers with the same rotation
// share one table.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "model/layer_weights.h"

namespace qkv {

class RotaryTables {
 public:
  // Sets each layer's table index.
  RotaryTables(const Device& device, std::span<LayerWeights> layers);

  // Extends the tables to at least this many positions.
  void reach(std::int64_t positions);
  std::span<const RotaryTable> views() const noexcept { return views_; }

 private:
  struct Angles {
    std::vector<double> frequencies;  // [rotated / 2]
    double factor;                    // scales cosines and sines
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
